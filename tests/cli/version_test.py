#!/usr/bin/env python3
"""The version has one place, and `sluice --version --json` says all that a bug report needs.

Usage: version_test.py SLUICE ROOT FAKE, the folder of a libcuda.so.1 that answers from the environment.
"""

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

SLUICE, ROOT, FAKE = (str(Path(sys.argv.pop(1)).resolve()) for _ in range(3))
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("SLUICE_", "FAKE_CUDA_"))}
VERSION = re.search(r"^project\(Sluice VERSION (\d+\.\d+\.\d+) ", (Path(ROOT) / "CMakeLists.txt").read_text(),
                    re.MULTILINE)[1]


def run(*words, **variables):
    return subprocess.run([SLUICE, *words], env={**ENVIRONMENT, **variables}, capture_output=True, encoding="utf-8",
                          timeout=120)


def report(**variables):
    result = run("--version", "--json", **variables)
    assert (result.returncode, result.stderr) == (0, ""), result
    return json.loads(result.stdout)


def cuda(**variables):
    return report(LD_LIBRARY_PATH=FAKE, **{f"FAKE_CUDA_{name}": str(value) for name, value in variables.items()})["cuda"]


class Version(unittest.TestCase):
    def test_every_file_that_names_it_has_that_of_cmake(self):
        self.assertEqual(run("--version").stdout, f"sluice {VERSION}\n")
        for name, pattern in (("CHANGELOG.md", r"^## \[?([\d.]+)"), ("CITATION.cff", r"^version: (\S+)$")):
            found = re.search(pattern, (Path(ROOT) / name).read_text(encoding="utf-8"), re.MULTILINE)
            self.assertEqual((name, found and found[1]), (name, VERSION))

    def test_no_other_file_names_one(self):
        project = (Path(ROOT) / "pyproject.toml").read_text(encoding="utf-8")
        self.assertIn('dynamic = ["version"]', project)
        self.assertNotRegex(project, r"(?m)^version *=")
        for file in ("Makefile", "scripts/release.sh", "packaging/image.py", "include/sluice/c/base.h", "docs/releasing.md"):
            self.assertNotIn(VERSION, (Path(ROOT) / file).read_text(encoding="utf-8"), file)

    def test_the_order_of_the_words_does_not_matter(self):
        self.assertEqual(run("--json", "--version").stdout, run("--version", "--json").stdout)
        self.assertEqual(run("--json").returncode, 2)


class Report(unittest.TestCase):
    def test_it_says_what_was_built(self):
        given = report()
        self.assertEqual(given["version"], VERSION)
        self.assertRegex(given["compiler"], r"^(gcc|clang) \d+\.")
        if (Path(ROOT) / ".git").exists():
            self.assertRegex(given["commit"], r"^[0-9a-f]{40}(-dirty)?$")
        for version in given["libraries"].values():
            self.assertRegex(version, r"^\d+\.\d+")
        if run("inspect", "model").returncode == 0:
            file = Path(ROOT) / "models/default/model.safetensors"
            self.assertEqual(given["model"], {"name": "default", "bytes": file.stat().st_size})
        else:
            self.assertIsNone(given["model"])

    def test_it_says_where_it_runs(self):
        given, system = report(), os.uname()
        self.assertEqual(given["system"], f"{system.sysname} {system.release} {system.machine}")
        self.assertEqual(given["libc"], " ".join(os.confstr("CS_GNU_LIBC_VERSION").split()))
        self.assertGreater(given["threads"], 0)
        self.assertGreater(len(given["cpu"]), 0)

    def test_it_says_which_vectors_are_compiled_and_used(self):
        given = report()
        self.assertEqual(given["backends"], json.loads(run("inspect", "backends", "--json").stdout)["backends"])
        self.assertEqual(given["backend"], next(each["name"] for each in given["backends"] if each["available"]))
        self.assertEqual(report(SLUICE_BACKEND="ref")["backend"], "ref")

    def test_it_names_the_driver_and_its_devices(self):
        given = cuda(VERSION=12080, DEVICES=2)
        self.assertEqual(given["driver"], "12.8")
        self.assertEqual(given["devices"], [
            {"name": "Fake 10", "compute_capability": "9.0", "bytes": 10 << 30},
            {"name": "Fake 11", "compute_capability": "9.1", "bytes": 11 << 30}])
        given = cuda(VERSION=13000, ERROR=999)
        self.assertEqual((given["driver"], given["devices"]), ("13.0", []))
        if given["compiled"] is None:
            self.assertIsNone(given["problem"])  # the build takes no GPU
        else:
            self.assertIn("999", given["problem"])


if __name__ == "__main__":
    unittest.main()
