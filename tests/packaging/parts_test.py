#!/usr/bin/env python3
"""The parts of a release: man pages, the bill of materials, the image, and the check of a program.

Usage: parts_test.py SLUICE ROOT.
"""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "packaging"))

import check_elf  # noqa: E402
import image  # noqa: E402
import man_pages  # noqa: E402
import notices  # noqa: E402


class ManPages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pages = man_pages.pages(SLUICE)

    def test_every_command_has_a_page(self):
        bash = subprocess.run([SLUICE, "completion", "fish"], capture_output=True, check=True,
                              encoding="utf-8").stdout
        for name in man_pages.commands_of(man_pages.help_of(SLUICE, [])):
            self.assertIn(f"sluice-{name}.1", self.pages)
            self.assertIn(name, bash)
        self.assertIn("sluice-inspect-backends.1", self.pages)

    def test_no_flag_of_the_help_is_lost(self):
        for words in ([], ["explain"], ["bench", "select"]):
            flags = {line.split()[0].rstrip(",") for line in
                     man_pages.help_of(SLUICE, words).splitlines() if line.startswith("  -")}
            self.assertTrue(flags)
            page = self.pages["-".join(["sluice", *words]) + ".1"].replace(r"\-", "-")
            for flag in flags:
                self.assertIn(rf"\fB{flag}", page)

    @unittest.skipUnless(shutil.which("groff"), "groff is not here")
    def test_groff_reads_them_without_a_warning(self):
        for name, text in self.pages.items():
            result = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=text, encoding="utf-8",
                                    capture_output=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)


class Elf(unittest.TestCase):
    def faults(self, headers, symbols):
        with mock.patch.object(check_elf, "objdump",
                               lambda flag, file: {"-p": headers, "-T": symbols}[flag]):
            return check_elf.faults("program")

    def test_libc_alone_at_2_34_is_fine(self):
        self.assertEqual(self.faults("  NEEDED               libc.so.6\n",
                                     "0000 DF *UND*\t0000 (GLIBC_2.34) dlopen\n"), [])

    def test_another_library_and_a_newer_symbol_are_named(self):
        found = self.faults("  NEEDED               libzmq.so.5\n",
                            "0000 DF *UND*\t0000 (GLIBC_2.36) arc4random\n")
        self.assertEqual(found, ["program needs libzmq.so.5, which is not of libc",
                                 "program needs arc4random of glibc 2.36; the newest may be 2.34"])

    @unittest.skipUnless(shutil.which("objdump"), "objdump is not here")
    def test_it_reads_real_programs(self):
        # This program is linked with shared libraries of C++, so there is something to find.
        needed = subprocess.run(["objdump", "-p", SLUICE], capture_output=True, encoding="utf-8").stdout
        self.assertEqual(any("libstdc++" in fault for fault in check_elf.faults(SLUICE)),
                         "libstdc++" in needed)


class Notices(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, _, _ in notices.PARTS:
            (self.folder / name).write_text(f"licence of {name}\n")
        self.enterContext(mock.patch.object(notices, "version_of", lambda package: "1.0"))

    def test_every_licence_is_there(self):
        text = notices.notices(self.folder)
        for name, _, _ in notices.PARTS:
            self.assertIn(f"licence of {name}\n", text)

    def test_a_library_without_an_entry_is_refused(self):
        (self.folder / "another").write_text("licence\n")
        with self.assertRaisesRegex(SystemExit, "another"):
            notices.notices(self.folder)

    def test_the_bill_names_the_program_by_its_digest(self):
        bill = notices.bill("1.2.3", Path(SLUICE))
        digest = hashlib.sha256(Path(SLUICE).read_bytes()).hexdigest()
        self.assertEqual(bill["packages"][0]["checksums"][0]["checksumValue"], digest)
        names = {package["SPDXID"] for package in bill["packages"]} | {"SPDXRef-DOCUMENT"}
        for relation in bill["relationships"]:
            self.assertIn(relation["spdxElementId"], names)
            self.assertIn(relation["relatedSpdxElement"], names)
        self.assertEqual(len(bill["packages"]), len(notices.PARTS) + 1)


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.files = image.image_files(Path(shutil.which("true")), "1.2.3", "x86_64")

    def blob(self, described):
        self.assertTrue(described["digest"].startswith("sha256:"))
        content = self.files["blobs/sha256/" + described["digest"].removeprefix("sha256:")]
        self.assertEqual(described["size"], len(content))
        self.assertEqual(described["digest"], "sha256:" + hashlib.sha256(content).hexdigest())
        return content

    def manifest(self):
        return json.loads(self.blob(json.loads(self.files["index.json"])["manifests"][0]))

    def test_every_digest_and_size_is_that_of_its_file(self):
        manifest = self.manifest()
        config = json.loads(self.blob(manifest["config"]))
        tar = gzip.decompress(self.blob(manifest["layers"][0]))
        self.assertEqual(config["rootfs"]["diff_ids"],
                         ["sha256:" + hashlib.sha256(tar).hexdigest()])
        self.assertEqual(len(self.files), 2 + 3)

    def test_the_program_runs_in_the_image_alone(self):
        with tempfile.TemporaryDirectory() as root:
            tar = gzip.decompress(self.blob(self.manifest()["layers"][0]))
            with tarfile.open(fileobj=io.BytesIO(tar)) as layer:
                layer.extractall(root)
            if subprocess.run(["chroot", "/", "true"], capture_output=True).returncode != 0:
                self.skipTest("chroot needs root")
            subprocess.run(["chroot", root, "/sluice"], check=True)

    def test_one_program_gives_one_image(self):
        again = image.image_files(Path(shutil.which("true")), "1.2.3", "x86_64")
        self.assertEqual(again, self.files)


if __name__ == "__main__":
    unittest.main()
