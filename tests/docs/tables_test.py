#!/usr/bin/env python3
"""scripts/bench_tables.py on small files, and the pages of the repository. Usage: tables_test.py ROOT."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
SCRIPT = ROOT / "scripts/bench_tables.py"
sys.dont_write_bytecode = True
_spec = importlib.util.spec_from_file_location("bench_tables", SCRIPT)
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)

ROWS = [{"task": "a", "batch": 1, "ns": 1234, "mean_ns": 2000, "peer": "x", "peer_ns": 2468},
        {"task": "a", "batch": 8, "ns": 12345, "peer": "x", "peer_ns": 1},
        {"task": "b", "batch": 1, "ns": 1234567, "mean_ns": 1, "peer": "x", "peer_ns": 1}]
TWO = [("a", {"task": "a"}), ("b", {"task": "b"})]


class Made(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "README.md").write_text("")
        self.save(ROWS)

    def save(self, rows):
        report = {"env": {"gpu": "G", "cpu": "C"}, "commit": "0123456789", "rows": rows}
        (self.root / "f.json").write_text(json.dumps(report))

    def fill(self, page, *specs, write=False):
        (self.root / "docs/p.md").write_text(page)
        return tables.fill(self.root, specs, tables.Results(self.root), write)

    def lines(self, **more):
        spec = {"rows": TWO, "columns": tables.each("batch", 1, 8), "sparse": True, **more}
        faults = self.fill("<!-- table: t -->\n<!-- end -->\n", tables.table("t", "f.json", **spec), write=True)
        self.assertEqual(faults, [])
        return (self.root / "docs/p.md").read_text().split("\n")

    def test_rows_columns_and_the_source(self):
        self.assertEqual(self.lines(heads=("task",)), [
            "<!-- table: t -->", "| task | 1 | 8 |", "|---|---|---|", "| a | 1.23 | 12.3 |", "| b | 1,235 |  |", "",
            "*G, commit 0123456: [f.json](../f.json).*", "<!-- end -->", ""])

    def test_statistics_ratios_parts_and_bold(self):
        rows = [tables.of("a", {"task": "a"}, stat="mean_ns"), tables.of("b", {"task": "b"})]
        columns = [tables.of("s", value="@stat"), tables.of("us", {"batch": 1}),
                   tables.of("times", {"batch": 1}, value="peer_ns/{stat}", decimals=2),
                   tables.of("both", value="ns/1000", parts=[{"where": {"batch": 1}}, {"where": {"batch": 8}}])]
        self.assertEqual(self.lines(rows=rows, columns=columns, best=min)[3:5],
                         ["| a | mean | **2.00** | 1.23 | 1.23 / 12.3 |", "| b | median | 1,235 | **0.00** | **1,235** |"])

    def test_a_cell_that_is_missing_or_ambiguous_is_a_fault(self):
        page = "<!-- table: t -->\n<!-- end -->"
        spec = tables.table("t", "f.json", TWO, tables.each("batch", 1, 8))
        self.assertIn("no row of f.json for b, 8", self.fill(page, spec)[0])
        self.save(ROWS + [{**ROWS[0], "ns": 9000}])
        spec = tables.table("t", "f.json", TWO, tables.each("batch", 1))
        self.assertIn("2 different values", self.fill(page, spec)[0])
        first = tables.table("t", "f.json", TWO, tables.each("batch", 1), first=True)
        self.assertEqual(self.fill(page, first, write=True), [])
        self.assertIn("| a | 1.23 |", (self.root / "docs/p.md").read_text())

    def test_a_page_that_differs_is_a_fault(self):
        spec = tables.table("t", "f.json", TWO, tables.each("batch", 1))
        self.assertEqual(self.fill("<!-- table: t -->\n<!-- end -->", spec, write=True), [])
        good = (self.root / "docs/p.md").read_text()
        self.assertEqual(self.fill(good, spec), [])
        self.assertIn("not that of its file", self.fill(good.replace("1.23", "1.24"), spec)[0])
        self.save([{**row, "ns": row["ns"] + 100} for row in ROWS])
        self.assertEqual(len(self.fill(good, spec)), 1)

    def test_marks_without_a_table_and_tables_without_marks(self):
        spec = tables.table("t", "f.json", TWO, tables.each("batch", 1))
        self.assertEqual(self.fill("", spec), ["no page has the table or figure t"])
        self.assertIn("no table u", self.fill("<!-- table: u -->\n<!-- end -->")[0])
        self.assertIn("without its end", self.fill("<!-- table: t -->\n", spec)[0])

    def test_figures_within_a_sentence(self):
        one = tables.figure("f", "f.json", {"task": "a", "batch": 1}, "peer_ns/ns", decimals=1, unit="x")
        self.assertEqual(self.fill("a <!-- figure: f --><!-- / --> b", one, write=True), [])
        good = (self.root / "docs/p.md").read_text()
        self.assertEqual(good, "a <!-- figure: f -->2.0x<!-- / --> b")
        self.assertEqual(self.fill(good, one), [])
        self.assertIn("not that of its file", self.fill(good.replace("2.0", "2.1"), one)[0])
        self.assertIn("begins a line", self.fill("\n" + good[2:], one)[0])
        self.assertIn("no such figure", self.fill("a <!-- figure: g --><!-- / -->")[0])

    def test_a_figure_that_a_function_makes_of_rows(self):
        most = tables.figure("f", "f.json", {"task": "a"}, lambda rows: max(row["ns"] for row in rows) / 1000)
        self.assertEqual(self.fill("a <!-- figure: f --><!-- / -->", most, write=True), [])
        self.assertIn("-->12.3<!--", (self.root / "docs/p.md").read_text())
        none = tables.figure("f", "f.json", {"task": "c"}, lambda rows: max(row["ns"] for row in rows))
        self.assertIn("no row of", self.fill("a <!-- figure: f --><!-- / -->", none)[0])

    def test_ratios_of_the_medians_of_groups(self):
        rows = [{"by": by, "kind": kind, "ns": ns} for by, kind, ns in (
            (1, "x", 2), (1, "x", 4), (1, "x", 6), (1, "y", 8), (2, "x", 3), (2, "y", 1), (3, "x", 5))]
        self.assertEqual(tables.ratios(rows, "ns", {"kind": "x"}, {"kind": "y"}, "by"), [0.5, 3.0])

    def test_numbers_keep_their_whole_part(self):
        self.assertEqual([tables.rounded(x, 3) for x in (0.1234, 1.234, 12.34, 123.4, 1234.5, 0.0)],
                         ["0.12", "1.23", "12.3", "123", "1,234", "0.00"])


class Pages(unittest.TestCase):
    def test_the_pages_are_what_the_files_say(self):
        result = subprocess.run([sys.executable, "-B", SCRIPT, "--root", ROOT, "--check"],
                                capture_output=True, encoding="utf-8", timeout=120)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
