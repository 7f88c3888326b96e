#!/usr/bin/env python3
"""docs/install.md has the presets, options and versions of the files that it is made from. Usage:
install_page_test.py ROOT."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
SCRIPT = ROOT / "scripts/install_tables.py"
sys.dont_write_bytecode = True
_spec = importlib.util.spec_from_file_location("install_tables", SCRIPT)
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)
READ = ("CMakeLists.txt", "CMakePresets.json", "cmake/SluiceCuda.cmake", "docs/install.md", "packaging/Containerfile",
        "packaging/check_elf.py", "packaging/notices.py", "pyproject.toml", "python/sluice/plugins/sglang.py",
        "python/sluice/plugins/vllm.py", "scripts/setup.sh", "src/support/registry.cc", "tests/all_tests.txt",
        "tests/packaging/wheels_test.py")


def run(root, *words):
    return subprocess.run([sys.executable, SCRIPT, "--root", root, *words], capture_output=True, encoding="utf-8", timeout=120)


class Page(unittest.TestCase):
    def test_it_is_current(self):
        result = run(ROOT)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_it_has_every_option_preset_and_component(self):
        page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
        given = set(re.findall(r"\bSLUICE_[A-Z_]+\b", re.sub(r"(?m)^ *#.*$", "", (ROOT / "CMakeLists.txt").read_text())))
        shown = set(re.findall(r"^\| `(SLUICE_[A-Z_]+)`", page, re.MULTILINE))
        self.assertEqual(given - {"SLUICE_CUDA_DEFAULT"}, shown)
        config = (ROOT / "cmake/SluiceConfig.cmake.in").read_text()
        for component in re.search(r"set\(Sluice_components ([^)]*)\)", config)[1].split():
            if "research" not in component:
                self.assertIn(f"`{component}`", page)


class Stale(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in READ:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "bench/results").mkdir(parents=True)
        for name in ("vllm-steps-h200.json", "draw-cpu.json"):
            shutil.copy(ROOT / "bench/results" / name, self.root / "bench/results")
        self.assertEqual(run(self.root, "--write").returncode, 0)

    def change(self, name, was, now):
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        self.assertIn(was, text)
        path.write_text(text.replace(was, now), encoding="utf-8")

    def test_a_change_of_what_it_is_made_from_is_seen_and_written(self):
        for name, was, now, shown in (("pyproject.toml", "vllm>=0.31,<0.34", "vllm>=0.31,<0.36", "<0.36"),
                                      ("packaging/check_elf.py", "(2, 34)", "(2, 39)", "glibc 2.39"),
                                      ("CMakeLists.txt", "option(SLUICE_FUZZ ", "option(SLUICE_FUSS ", "`SLUICE_FUSS`"),
                                      ("bench/results/vllm-steps-h200.json", "NVIDIA H200", "NVIDIA X9", "NVIDIA X9")):
            self.change(name, was, now)
            self.assertIn("docs/install.md is stale", run(self.root).stderr, name)
            self.assertEqual(run(self.root, "--write").returncode, 0)
            self.assertIn(shown, (self.root / "docs/install.md").read_text(encoding="utf-8"))
            self.assertEqual(run(self.root).returncode, 0)

    def test_a_test_that_is_gone_is_an_error(self):
        self.change("tests/all_tests.txt", "packaging.wheels\n", "")
        self.assertIn("tests/all_tests.txt has no packaging.wheels", run(self.root).stderr)


if __name__ == "__main__":
    unittest.main()
