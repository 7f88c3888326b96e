#!/usr/bin/env python3
"""bench/trace_study.py on a few tokens, and what it measures on rows whose answer is known.

Usage: trace_study_test.py SLUICE ROOT. Exit code 77: there is no numpy.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("trace_study_test: skipped, no numpy for", sys.executable)
    sys.exit(77)

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "bench"))
import trace_rows  # noqa: E402
import trace_study  # noqa: E402

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}

# A command that is sluice, but for one bit of the first kept set.
SPOILER = f"""#!{sys.executable}
import subprocess, sys
code = subprocess.run([{SLUICE!r}, *sys.argv[1:]]).returncode
if sys.argv[1] == "trace":
    with open(sys.argv[sys.argv.index("--output") + 1] + "/kept.npy", "r+b") as file:
        file.seek(128)
        bits = file.read(1)[0]
        file.seek(128)
        file.write(bytes([bits ^ 1]))
sys.exit(code)
"""


def study(*args, sluice=SLUICE):
    return subprocess.run([sys.executable, "-B", ROOT / "bench/trace_study.py", sluice, *args],
                          capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


def trace_of(kept):
    kept = np.array(kept, bool)
    logits = np.where(kept, 2, 1).astype(np.float32)
    tokens = [{"token": int(np.flatnonzero(row)[0]),
               "cut": {"lower": 2.0, "ties_kept": int(row.sum()), "count": int(row.sum())}}
              for row in kept]
    return trace_rows.Trace(np.zeros((len(kept), 1)), logits, kept,
                            np.array([token["token"] for token in tokens]), {"tokens": tokens})


class Study(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.result = study("--quick", "--json", f"{folder}/a.json")
            assert cls.result.returncode == 0, cls.result.stderr
            cls.report = json.loads(Path(folder, "a.json").read_text())
        cls.rows = cls.report["rows"]

    def of(self, task):
        found = [row for row in self.rows if (row["bench"], row["task"]) == ("traces", task)]
        self.assertGreater(len(found), 0, task)
        return found

    def test_the_file_is_a_benchmarks(self):
        self.assertEqual(sorted(self.report), ["commit", "env", "rows"])
        self.assertIn("load", self.report["env"])
        self.assertEqual(self.result.stderr, "")  # no progress where there is no terminal

    def test_rates_are_rates(self):
        for row in self.of("guess") + self.of("truncation"):
            self.assertTrue(0 <= row["holds"] <= 1, row)
        for row in self.of("certificate"):
            self.assertTrue(0 <= row["certified"] <= 1, row)
            dense = sum(row["dense"].values())
            self.assertAlmostEqual(row["certified"] * row["rows"], row["rows"] - dense)
        for row in self.of("mass_margin"):
            self.assertTrue(0 <= row["least"] <= row["median"] <= 1, row)

    def test_every_setting_has_sets_and_overlaps(self):
        texts = 2  # of the quick run, each of which has no overlap for its first token
        self.assertEqual({row["setting"] for row in self.of("kept")}, set(trace_study.SETTINGS))
        for kept, overlap in zip(self.of("kept"), self.of("overlap"), strict=True):
            self.assertEqual(sum(overlap["histogram"]), overlap["rows"] - texts)
            self.assertTrue(1 <= kept["least"] <= kept["median"] <= kept["most"] <= 8192)
            self.assertAlmostEqual(sum(kept["shares"]), 1)
            if kept["setting"] == "k=50":
                self.assertEqual((kept["least"], kept["most"]), (50, 50))

    def test_certified_tokens_are_the_dense_heads(self):
        found = self.of("certificate")
        self.assertEqual({(row["setting"], row["head"]) for row in found},
                         {(s, h) for s in trace_study.CERTIFIED for h in trace_study.HEADS})
        self.assertTrue(all(row["exact"] for row in found))
        for row in found:
            self.assertLessEqual(row["survivors_mean"], row["survivors_most"])

    def test_every_algorithm_is_ranked_and_exact(self):
        ranked = [row for row in self.rows if row["bench"] == "algorithms"]
        for task in ("top-p", "top-50", "the model's own"):
            own = [row for row in ranked if row["task"] == task and "algorithm" in row]
            self.assertLessEqual(set(trace_study.ARTICLE), {row["algorithm"] for row in own})
            self.assertTrue(all(row["exact"] for row in own))
        self.assertTrue(all("traces" in row["distribution"] for row in ranked))


class Failures(unittest.TestCase):
    def test_a_kept_set_that_is_wrong_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            spoiler = Path(folder, "sluice")
            spoiler.write_text(SPOILER)
            spoiler.chmod(0o755)
            result = study("--quick", sluice=str(spoiler))
        self.assertEqual(result.returncode, 1)
        self.assertIn("rows are not what they should be", result.stderr)

    def test_what_cannot_be_run_or_written_is_named_at_once(self):
        for args, sluice, said in ((("--json", "/nowhere/a.json"), SLUICE, "/nowhere/a.json"),
                                   ((), "/nowhere/sluice", "/nowhere/sluice cannot be run")):
            result = study("--quick", *args, sluice=sluice)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn(said, result.stderr)
            self.assertNotIn("Traceback", result.stderr)


class Measures(unittest.TestCase):
    def test_kept_sets_are_what_selecting_from_the_logits_gives(self):
        for flags in (("--top-p", "0.9", "--temperature", "1.2"), ("--top-k", "9"),
                      ("--min-p", "0.05", "--head", "strict")):
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([SLUICE, "trace", "Once upon a", "--output", folder, "--seed", "5",
                                "--max-tokens", "5", "--quiet", *flags], env=ENVIRONMENT,
                               check=True, capture_output=True)
                trace = trace_rows.Trace.read(folder)
                Path(folder, "p.json").write_text(json.dumps(trace.parameters))
                self.assertEqual(trace.cuts_differ(), 0)
                for row, kept in enumerate(trace.kept):
                    told = subprocess.run(
                        [SLUICE, "inspect", f"{folder}/logits.npy", "--row", str(row), "--json",
                         "--show-candidates", "8192", "--params", f"{folder}/p.json"],
                        env=ENVIRONMENT, check=True, capture_output=True)
                    expected = {candidate["id"] for candidate in json.loads(told.stdout)["candidates"]
                                if candidate["kept"]}
                    self.assertEqual(set(np.flatnonzero(kept)), expected)

    def test_a_set_overlaps_itself_wholly_and_others_by_what_they_share(self):
        trace = trace_of([[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]])
        self.assertEqual(trace.overlaps().tolist(), [1, 0.5, 0, 0.5])
        self.assertEqual(trace.overlaps(2).tolist(), [0.5, 0.5, 0.5])
        self.assertEqual(trace.sizes().tolist(), [2, 2, 2, 2, 4])
        self.assertEqual(trace_rows.histogram([0, 0.05, 0.1, 0.5, 0.99, 1]),
                         [2, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1])

    def test_a_set_that_is_not_its_cuts_differs(self):
        rows = [[1, 1, 0, 0], [0, 1, 1, 0]]
        self.assertEqual(trace_of(rows).cuts_differ(), 0)
        for spoil in (lambda t: t.kept.__setitem__((0, 2), True),
                      lambda t: t.tokens.__setitem__(1, 3),
                      lambda t: t.about["tokens"][1]["cut"].update(count=3),
                      lambda t: t.about["tokens"][0]["cut"].update(ties_kept=1)):
            trace = trace_of(rows)
            spoil(trace)
            self.assertEqual(trace.cuts_differ(), 1)

    def test_bits_are_in_the_order_of_ids(self):
        bits = trace_rows.bits_of(np.array([[5, -2 ** 31, 1]], np.int32), 66)
        self.assertEqual(np.flatnonzero(bits[0]).tolist(), [0, 2, 63, 64])

    def test_truncation_holds_where_the_nucleus_is_gathered_and_fits(self):
        logits = np.random.default_rng(3).normal(size=8192).astype(np.float32)
        ordered = np.sort(logits)[::-1]
        room = trace_rows.room_of(128, 8192)
        self.assertTrue(128 * 16 + 128 * 4 * room <= 256 * 1024 < 128 * 16 + 128 * 4 * (room + 1))
        guess = trace_rows.Truncation(0.9, room, False)
        gathered = guess.holds(logits, ordered[0])[1]
        self.assertLess(gathered, room)
        self.assertTrue(guess.holds(logits, ordered[gathered - 1])[0])
        self.assertFalse(guess.holds(logits, ordered[gathered])[0])
        # Half of the row is far below, and the guess finds more than fits; a table learns better.
        logits[::2] -= 30
        ordered = np.sort(logits)[::-1]
        self.assertFalse(guess.holds(logits, ordered[20])[0])
        learning = trace_rows.Truncation(0.9, room, True)
        held = [learning.holds(logits, ordered[20])[0] for _ in range(40)]
        self.assertFalse(held[0])
        self.assertTrue(all(held[-10:]))


if __name__ == "__main__":
    unittest.main()
