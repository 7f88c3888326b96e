#!/usr/bin/env python3
"""What `make release` put into dist/, as a stranger's machine has it: unpacked, in a root folder with
libc and nothing else. Exit code 77 where it was not built, or from another version.

Usage: release_test.py SLUICE ROOT.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "packaging"), str(ROOT / "tests/cli")]

import check_elf  # noqa: E402
import image  # noqa: E402
import served  # noqa: E402

VERSION = re.search(r"^project\(Sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(),
                    re.MULTILINE)[1]
NAME = f"sluice-{VERSION}-linux-{platform.machine()}"
ARCHIVE = ROOT / "dist" / f"{NAME}.tar.gz"
LARGEST = 30_000_000


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, encoding="utf-8",
                          env=served.ENVIRONMENT, timeout=600, **more)


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(cls.work)
        cls.folder = cls.work / NAME
        cls.sluice = cls.folder / "sluice"

    def test_the_archive_is_small_and_its_digest_is_listed(self):
        self.assertLess(ARCHIVE.stat().st_size, LARGEST)
        sums = dict(reversed(line.split()) for line in
                    (ROOT / "dist/SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums[ARCHIVE.name], hashlib.sha256(ARCHIVE.read_bytes()).hexdigest())

    def test_what_is_in_it(self):
        for name in ("LICENSE", "LICENSE.model", "NOTICES", "completions/_sluice",
                     "completions/sluice.bash", "completions/sluice.fish", "man/man1/sluice.1"):
            self.assertGreater((self.folder / name).stat().st_size, 0, name)
        bill = json.loads((self.folder / "sluice.spdx.json").read_text())
        self.assertEqual(bill["packages"][0]["checksums"][0]["checksumValue"],
                         hashlib.sha256(self.sluice.read_bytes()).hexdigest())

    def test_it_needs_libc_alone(self):
        self.assertEqual(check_elf.faults(self.sluice), [])

    def test_it_generates_the_text_of_the_usual_build_with_libc_alone(self):
        generate = ["generate", "Once upon a time", "--seed", "7", "--max-tokens", "60"]
        root = self.work / "root"
        shutil.copytree(self.folder, root)
        for path, content in image.libraries_of(self.sluice).items():
            if Path(path).name not in check_elf.OF_LIBC:
                continue
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(0o755)
        if os.geteuid() != 0:
            self.skipTest("chroot needs root")
        alone = run("chroot", root, "/sluice", *generate)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertEqual(alone.stdout, run(SLUICE, *generate).stdout)
        version = run("chroot", root, "/sluice", "--version")
        self.assertEqual(version.stdout, f"sluice {VERSION}\n")

    def test_errors_are_sentences(self):
        """An exception passes through the program: one unwinder is in it."""
        bad = self.work / "bad"
        shutil.copytree(ROOT / "models/default", bad)
        (bad / "model.safetensors").write_bytes(
            (ROOT / "models/default/model.safetensors").read_bytes()[:1000])
        for words in (["generate", "Once", "--top-p", "3"], ["generate", "Once", "--nonsense"],
                      ["generate", "Once", "--model", bad]):
            result, usual = run(self.sluice, *words), run(SLUICE, *words)
            self.assertEqual((result.returncode, result.stderr), (usual.returncode, usual.stderr))
            self.assertTrue(result.stderr.startswith("sluice: "), result.stderr)

    def test_errors_in_threads_of_the_server_are_answers(self):
        with served.Server(str(self.sluice)) as server:
            status, _, body = server.post("/v1/completions", {"prompt": "It", "top_p": 3})
            self.assertEqual(status, 400, body)
            status, _, body = server.ask("POST", "/v1/completions", "{",
                                          {"Content-Type": "application/json"})
            self.assertEqual(status, 400, body)
            status, _, body = server.post("/v1/completions", {"prompt": "It was", "max_tokens": 8})
            self.assertEqual(status, 200, body)
            self.assertEqual(server.end()[0], 0)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        print(f"skipped: dist/{ARCHIVE.name} does not exist; make release builds it")
        sys.exit(77)
    unittest.main()
