#!/usr/bin/env python3
"""Draws small results with scripts/plot_bench.py. Usage: plot_test.py ROOT."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

PLOT = ""  # path of the script, set from the command line
SVG = "{http://www.w3.org/2000/svg}"
BLUE, RED, GREY = "#3b6fb6", "#c0443c", "#8a8f98"


def row(task, ns, target=None, **more):
    return {"bench": "select", "task": task, "backend": "cpu-avx2", "vocab": 100, "cache": "hot",
            "ns": ns, "mean_ns": 2 * ns, "floor_ns": 10, "target": target, **more}


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = os.path.join(folder.name, "result.json")
        self.output = os.path.join(folder.name, "img", "result.svg")

    def plot(self, rows, *args):
        report = {"env": {"cpu": "A & B"}, "commit": "abc", "rows": rows}
        with open(self.source, "w", encoding="utf-8") as file:
            json.dump(report, file)
        return subprocess.run([sys.executable, "-B", PLOT, self.source, "--output", self.output,
                               *args], capture_output=True, encoding="utf-8", timeout=60)

    def drawn(self, rows, *args):
        """(label, colour) of every bar, and the picture."""
        result = self.plot(rows, *args)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        with open(self.output, "rb") as file:
            picture = file.read()
        root = ElementTree.fromstring(picture)
        labels = [t.text for t in root.iter(SVG + "text") if t.get("x") == "322"]
        colours = [r.get("fill") for r in root.iter(SVG + "rect")][1:]
        return list(zip(labels, colours, strict=True)), picture

    def test_a_missed_target_is_red(self):
        bars, _ = self.drawn([row("met", 15, 2.0), row("missed", 25, 2.0), row("free", 25),
                              row("mean", 15, 2.0, target_of="mean")])
        self.assertEqual(bars, [("met", BLUE), ("missed", RED), ("free", BLUE), ("mean", RED)])

    def test_labels_say_what_differs_and_the_heading_what_does_not(self):
        bars, picture = self.drawn([row("a", 20), row("a", 30, cache="cold"), row("a", 30)])
        self.assertEqual([label for label, _ in bars], ["hot", "cold"])
        self.assertIn(b"a, cpu-avx2, V=100, A &amp; B, commit abc", picture)
        bars, _ = self.drawn([row("a", 20), row("b", 30), row("a", 30, cache="cold")])
        self.assertEqual([label for label, _ in bars], ["a, hot", "b, hot", "a, cold"])

    def test_rows_are_chosen_by_their_values(self):
        rows = [row("a", 20), row("b", 30), row("c", 30, cache="cold")]
        self.assertEqual(len(self.drawn(rows, "--only", "cache=hot")[0]), 2)
        self.assertEqual(len(self.drawn(rows, "--only", "task=a,c")[0]), 2)

    def test_peers_are_grey(self):
        bars, _ = self.drawn([row("a", 20, peer="sort", peer_ns=400)], "--peers")
        self.assertEqual(bars, [("a", BLUE), ("a: sort", GREY)])

    def test_algorithms_are_named(self):
        rows = [{**row("a", 20), "bench": "algorithms", kind: name}
                for kind, name in (("algorithm", "radix"), ("peer", "sort"))]
        self.assertEqual(self.drawn(rows)[0], [("radix", BLUE), ("sort", GREY)])

    def test_the_same_file_gives_the_same_bytes(self):
        rows = [row("a", 20), row("b", 3000, 4.5)]
        self.assertEqual(self.drawn(rows)[1], self.drawn(rows)[1])

    def test_what_cannot_be_drawn_is_refused(self):
        for rows, args, said in (([], (), "no timed rows"), ([row("a", 0)], (), "no timed rows"),
                                 ([row("a", 1)], ("--only", "cache=warm"), "cache=warm"),
                                 ([row("a", 1)], ("--only", "cash=hot"), "cache")):
            result = self.plot(rows, *args)
            self.assertEqual(result.returncode, 2)
            self.assertIn(said, result.stderr)


if __name__ == "__main__":
    PLOT = os.path.join(os.path.abspath(sys.argv.pop(1)), "scripts", "plot_bench.py")
    unittest.main()
