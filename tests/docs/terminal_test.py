#!/usr/bin/env python3
"""The pictures of terminals are what scripts/terminal_svg.py makes of golden.txt. Usage: terminal_test.py ROOT."""

import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
SCRIPT, GOLDEN = ROOT / "scripts/terminal_svg.py", ROOT / "tests/cli/golden.txt"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(golden, *sections):
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "picture.svg"
        result = subprocess.run([sys.executable, "-B", SCRIPT, golden, *sections, "--output", output],
                                capture_output=True, encoding="utf-8", timeout=60)
        return result, output.read_text(encoding="utf-8") if output.exists() else ""


def rows(picture):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(SVG + "text")]


class Terminal(unittest.TestCase):
    def golden(self, text):
        file = tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return file.name

    def test_the_candidates_are_those_of_the_run(self):
        _, picture = drawn(GOLDEN, "candidates")
        self.assertEqual((ROOT / "docs/img/candidates.svg").read_text(encoding="utf-8"), picture,
                         "see scripts/terminal_svg.py")

    def test_the_committed_picture_is_that_of_the_runs(self):
        _, picture = drawn(GOLDEN, "serve", "serve_stream")
        self.assertEqual((ROOT / "docs/img/serve.svg").read_text(encoding="utf-8"), picture,
                         "see scripts/terminal_svg.py")
        text = "".join(rows(picture))
        golden = GOLDEN.read_text(encoding="utf-8")
        for name in ("serve", "serve_stream"):
            shown = re.search(rf"^# \[{name}\]\n(.*?)^# \[{name}\]", golden, re.DOTALL | re.MULTILINE)[1]
            for line in filter(None, shown.split("\n")):
                self.assertIn(line, text)
        self.assertEqual(text.count("$ sluice serve"), 1)

    def test_lines_are_cut_at_the_width_and_lose_nothing(self):
        line = "".join(str(i % 10) for i in range(250)) + "<&>"
        result, picture = drawn(self.golden(f"# [a]\n$ sluice x\n{line}\n\nend\n# [a]\n"), "a")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("text,tspan{white-space:pre}", picture)  # or browsers draw the columns of a table as one space
        self.assertEqual(rows(picture), ["$ sluice x", line[:100], line[100:200], line[200:], "end"])

    def test_a_section_that_is_not_there_is_named(self):
        result, picture = drawn(self.golden("# [a]\n$ sluice x\n# [a]\n"), "b")
        self.assertEqual((result.returncode, picture), (1, ""))
        self.assertIn("[b]", result.stderr)


if __name__ == "__main__":
    unittest.main()
