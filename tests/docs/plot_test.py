#!/usr/bin/env python3
"""Draws small results with scripts/plot_bench.py. Usage: plot_test.py ROOT."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

PLOT = ""  # path of the script, set from the command line
SVG = "{http://www.w3.org/2000/svg}"
BLUE, RED, GREY = "ours", "missed", "other"  # classes of the style sheet


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
        labels = [t.text for t in root.iter(SVG + "text") if t.get("class") == "ink label"]
        classes = [r.get("class").split() for r in root.iter(SVG + "rect")]
        colours = [kind[1] for kind in classes if kind[0] == "bar"]
        self.assertEqual({kind[1] for kind in classes if kind[0] == "key"}, set(colours), "the legend")
        return list(zip(labels, colours, strict=True)), picture

    def test_a_missed_target_is_red(self):
        bars, _ = self.drawn([row("met", 15, 2.0), row("missed", 25, 2.0), row("free", 25),
                              row("mean", 15, 2.0, target_of="mean")], "--targets")
        self.assertEqual(bars, [("met", BLUE), ("missed", RED), ("free", BLUE), ("mean", RED)])

    def test_labels_say_what_differs_and_the_heading_what_does_not(self):
        bars, picture = self.drawn([row("a", 20), row("a", 30, cache="cold"), row("a", 30)])
        self.assertEqual([label for label, _ in bars], ["hot", "cold"])
        self.assertIn(b"a, cpu-avx2, V = 100, A &amp; B, commit abc", picture)
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

    def test_targets_are_shown_on_request(self):
        bars, picture = self.drawn([row("missed", 25, 2.0)])
        self.assertEqual(bars, [("missed", BLUE)])
        self.assertNotIn(b"target", picture)
        self.assertIn(b">target<", self.drawn([row("missed", 25, 2.0)], "--targets")[1])

    def test_a_label_has_room_and_the_page_a_dark_mode(self):
        label = "softmax, sort, cumulative sum and a binary search, all by name"
        bars, picture = self.drawn([row(label, 20), row("b", 30)])
        root = ElementTree.fromstring(picture)
        end = next(float(t.get("x")) for t in root.iter(SVG + "text") if t.text == label)
        self.assertGreater(end, 6.5 * len(label))  # of a letter of 12 pixels
        width = float(root.get("width"))
        for rect in root.iter(SVG + "rect"):
            self.assertLessEqual(float(rect.get("x", 0)) + float(rect.get("width")), width)
        self.assertIn(b"prefers-color-scheme:dark", picture)

    def test_small_ratios_are_linear_and_large_ones_logarithmic(self):
        self.assertNotIn(b"logarithmic", self.drawn([row("a", 10), row("b", 400)])[1])
        self.assertNotIn(b"logarithmic", self.drawn([row("a", 10), row("b", 4000)], "--linear")[1])
        picture = self.drawn([row("a", 10), row("b", 4000)])[1]
        self.assertIn(b"logarithmic", picture)
        widths = [float(r.get("width")) for r in ElementTree.fromstring(picture).iter(SVG + "rect")
                  if r.get("class").startswith("bar")]
        self.assertGreater(widths[0], 50)  # one read is seen, too

    def test_any_field_can_be_drawn_below_zero_too(self):
        rows = [{**row("a", 20), "peer": name, "gap": gap} for name, gap in
                (("sluice", -1.5), ("torch-sort", 12.0))]
        bars, picture = self.drawn(rows, "--value", "gap", "--unit", " %", "--label", "peer")
        self.assertEqual(bars, [("Sluice", BLUE), ("torch, sort", GREY)])
        self.assertIn(b">-1.50 %<", picture)

    def test_groups_and_medians_of_rounds(self):
        rows = [{"bench": "front", "front": front, "streams": streams, "tokens_s": rate}
                for front, streams, rate in (("vLLM", 32, 9), ("Sluice", 32, 10), ("vLLM", 1, 2), ("Sluice", 1, 3),
                                             ("Sluice", 1, 1), ("Sluice", 1, 5.5))]
        args = ("--value", "tokens_s", "--label", "streams,front", "--median", "--decimals", "1")
        bars, picture = self.drawn(rows, *args, "--grouped")
        self.assertEqual(bars, [("streams: 1, vLLM", GREY), ("streams: 1, Sluice", BLUE),
                                ("streams: 32, vLLM", GREY), ("streams: 32, Sluice", BLUE)])
        self.assertIn(b">3.0<", picture)
        self.assertEqual(self.drawn(rows, *args)[0][0], ("streams: 32, vLLM", GREY))

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


class Committed(unittest.TestCase):
    def test_the_pictures_are_those_of_make_plots(self):
        root = os.path.dirname(os.path.dirname(PLOT))
        with open(os.path.join(root, "Makefile"), encoding="utf-8") as file:
            recipes = re.findall(r"^\t +?(scripts/plot_bench\.py .*?[^\\])\n|^\t(scripts/plot_bench\.py .*?[^\\])\n",
                                 file.read(), re.MULTILINE | re.DOTALL)
        self.assertGreater(len(recipes), 3)
        for recipe in recipes:
            words = shlex.split("".join(recipe).replace("\\\n", " ").split("; fi")[0].replace(
                "$(RESULTS)", os.path.join(root, "bench/results")))
            at = words.index("--output") + 1
            with tempfile.TemporaryDirectory() as folder:
                committed, words[at] = words[at], os.path.join(folder, "picture.svg")
                subprocess.run([sys.executable, "-B", PLOT, *words[1:]], check=True, timeout=60,
                               stdout=subprocess.DEVNULL)
                with open(words[at], "rb") as made, open(os.path.join(root, committed), "rb") as kept:
                    self.assertEqual(made.read(), kept.read(), f"{committed}: run make plots")


if __name__ == "__main__":
    PLOT = os.path.join(os.path.abspath(sys.argv.pop(1)), "scripts", "plot_bench.py")
    unittest.main()
