#!/usr/bin/env python3
"""What `make wheels` put into dist/, as a user has it: installed into an environment with numpy alone.
Exit code 77 where none was built, or from another version.

Usage: wheels_test.py SLUICE ROOT.
"""

import base64
import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT / "tests/cli")]

import check_elf  # noqa: E402
import served  # noqa: E402

VERSION = re.search(r"^project\(Sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
PLATFORM = f"manylinux_2_34_{platform.machine()}"
DIST, MODEL = ROOT / "dist", str(ROOT / "models/default")
LARGEST = 12_000_000
GENERATE = ("generate", "Once upon a time", "--model", MODEL, "--seed", "7", "--max-tokens", "40")

SAMPLE = """
import sys, time
start = time.monotonic()
import numpy as np, sluice
assert sluice.sample(np.array([[1.5, 0.25, 3.0, 2.75]], np.float32), temperature=0.8, top_k=2, seed=42).ids == [2]
others = {"torch", "vllm", "sglang", "transformers"} & set(sys.modules)
assert not others, others
print(f"the first sample came {time.monotonic() - start:.2f} s after the start")
"""
ENGINE = """
import sys, sluice
with sluice.EngineClient.local(sys.argv[1]) as client:
    print(client.generate("Once upon a time", seed=7, max_tokens=40).text, end="")
"""


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8",
                          env=served.ENVIRONMENT, timeout=600, **more)


def must(*command, **more):
    result = run(*command, **more)
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return result.stdout


class Wheel:
    """Tests of one wheel; `python` and `install` are of a subclass."""

    @classmethod
    def setUpClass(cls):
        cls.file = DIST / f"sluice_llm-{VERSION}-{cls.tag}-{PLATFORM}.whl"
        if not cls.file.exists():
            raise unittest.SkipTest(f"{cls.file.name} was not built")
        cls.work = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        with zipfile.ZipFile(cls.file) as archive:
            archive.extractall(cls.work / "files")
            cls.names = archive.namelist()
        cls.python, cls.scripts, cls.variables = cls.install()

    def programs(self):
        extension, = (self.work / "files/sluice").glob("_sluice*.so")
        return extension, self.work / f"files/sluice_llm-{VERSION}.data/scripts/sluice"

    def in_python(self, *words):
        return must("env", *self.variables, self.python, *words, cwd=self.work)

    def test_it_is_small_and_its_digest_is_listed(self):
        self.assertLessEqual(self.file.stat().st_size, LARGEST)
        sums = dict(reversed(line.split()) for line in (DIST / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums[self.file.name], hashlib.sha256(self.file.read_bytes()).hexdigest())

    def test_its_programs_need_libc_alone_and_export_nothing_else(self):
        extension, command = self.programs()
        for program in (extension, command):
            self.assertEqual(check_elf.faults(program), [])
            newest = max(tuple(map(int, version.split("."))) for version in
                         re.findall(r"GLIBC_([\d.]+)", check_elf.objdump("-T", program)))
            print(f"{program.name}: {program.stat().st_size / 1e6:.2f} MB, newest symbol of glibc "
                  f"{'.'.join(map(str, newest))}, needs "
                  + ", ".join(re.findall(r"NEEDED +(\S+)", check_elf.objdump("-p", program))))
            self.assertNotRegex(check_elf.objdump("-p", program), "(?m)^ *R(UN)?PATH")
        exported = re.findall(r"^\S+ g +D[FO] \.\S+\s+\S+ +(?:Base +)?(\S+)$", check_elf.objdump("-T", extension), re.MULTILINE)
        self.assertEqual(exported, ["PyInit__sluice"])

    def test_what_it_says_of_itself_is_true(self):
        about = f"sluice_llm-{VERSION}.dist-info"
        self.assertIn(f"Tag: {self.tag}-{PLATFORM}\n", (self.work / "files" / about / "WHEEL").read_text())
        for name in ("licenses/LICENSE", "licenses/NOTICES", "sboms/sluice.spdx.json", "METADATA", "entry_points.txt"):
            self.assertIn(f"{about}/{name}", self.names)
        notices = (self.work / "files" / about / "licenses/NOTICES").read_text()
        for linked in ("nanobind", "robin-map", "zeromq3", "simdjson"):
            self.assertIn(f"\n{linked}", notices)
        listed = {}
        for line in (self.work / "files" / about / "RECORD").read_text().splitlines():
            name, digest, size = line.split(",")
            listed[name] = (digest, size)
        self.assertEqual(sorted(listed), sorted(self.names))
        for name in set(self.names) - {f"{about}/RECORD"}:
            data = (self.work / "files" / name).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((name, listed[name]), (name, (f"sha256={digest}", str(len(data)))))

    def test_a_first_sample_without_torch(self):
        print(self.in_python("-c", SAMPLE), end="", flush=True)

    def test_an_engine_gives_the_text_of_the_usual_build(self):
        self.assertEqual(self.in_python("-c", ENGINE, MODEL), must(SLUICE, *GENERATE).removesuffix("\n"))

    def test_the_command_gives_it_too(self):
        command = self.scripts / "sluice"
        self.assertEqual(must(command, *GENERATE), must(SLUICE, *GENERATE))
        self.assertEqual(must(command, "--version"), f"sluice {VERSION}\n")
        report, python = json.loads(must(command, "--version", "--json")), json.loads(self.in_python("-m", "sluice", "--version", "--json"))
        self.assertEqual({name: python.pop(name) for name in report}, report)
        self.assertIsNone(report["model"])
        result = run(command, "generate", "a")
        self.assertEqual((result.returncode, result.stderr), (
            1, "sluice: missing --model: give the folder of a model; this build has no built-in model\n"))

    def test_output_matches_a_schema_by_a_library_that_has_the_usual_runtime(self):
        """The C++ run-time library inside must not meet that of xgrammar."""
        libraries = sorted(ROOT.glob("build/python-venv/lib/python3*/site-packages/xgrammar"))
        if not libraries:
            self.skipTest("build/python-venv has no xgrammar")
        schema = self.work / "schema.json"
        schema.write_text('{"type": "object", "properties": {"age": {"enum": [20, 30]}}, "required": ["age"]}')
        words = ("generate", "The king", "--model", MODEL, "--seed", "7", "--max-tokens", "60", "--json-schema", schema)
        for folder in (libraries[0].parent, "/nowhere"):
            result, usual = (run(program, *words, "--grammar-library", folder) for program in (self.scripts / "sluice", SLUICE))
            self.assertEqual((result.returncode, result.stdout), (usual.returncode, usual.stdout), result.stderr)
            if result.returncode == 0:
                self.assertIn(json.loads(result.stdout)["age"], (20, 30))
            else:
                self.assertIn("grammar_library", result.stderr.replace("-", "_"))

    def test_its_server_answers(self):
        with served.Server(str(self.scripts / "sluice"), "--model", MODEL) as server:
            status, _, body = server.post("/v1/completions", {"prompt": "It was", "max_tokens": 8})
            self.assertEqual(status, 200, body)
            status, _, body = server.post("/v1/completions", {"prompt": "It", "top_p": 3})
            self.assertEqual(status, 400, body)
            self.assertEqual(server.end()[0], 0)


class For311(Wheel, unittest.TestCase):
    tag = "cp311-cp311"

    @classmethod
    def install(cls):
        venv = cls.work / "venv"
        if not (ROOT / "build/python-wheels").exists():
            raise unittest.SkipTest("build/python-wheels does not exist; scripts/setup.sh python makes it")
        must(ROOT / "build/python-venv/bin/python", "-m", "venv", venv)
        start = time.monotonic()
        must(venv / "bin/pip", "install", "-q", "--no-index", "--find-links", ROOT / "build/python-wheels", cls.file)
        print(f"{cls.file.name}: {cls.file.stat().st_size / 1e6:.2f} MB, installed with numpy in "
              f"{time.monotonic() - start:.1f} s", flush=True)
        return venv / "bin/python", venv / "bin", ()

    def test_python_starts_the_command_that_came_with_it(self):
        self.assertEqual(self.in_python("-m", "sluice", *GENERATE), must(SLUICE, *GENERATE))
        self.assertEqual(must(self.scripts / "pip", "check"), "No broken requirements found.\n")


class ForStableAbi(Wheel, unittest.TestCase):
    tag = "cp312-abi3"

    @classmethod
    def install(cls):
        """Next to the numpy of the environment that built it."""
        pythons = sorted(ROOT.glob("build/wheel-venv-3.*/bin/python"))
        if not pythons:
            raise unittest.SkipTest("build/wheel-venv-3.* does not exist")
        must(pythons[-1], "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", cls.work / "package", cls.file)
        return pythons[-1], cls.work / "package/bin", (f"PYTHONPATH={cls.work / 'package'}",)


if __name__ == "__main__":
    if not list(DIST.glob(f"sluice_llm-{VERSION}-*-{PLATFORM}.whl")):
        print(f"skipped: dist/ has no wheels of {VERSION}; make wheels builds them")
        sys.exit(77)
    unittest.main()
