#!/usr/bin/env python3
"""bench/qrita_guess.py on rows with known counts, and on a table in a folder like vLLM's.

Usage: qrita_guess_test.py SLUICE ROOT. Exit code 77: numpy is missing.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("qrita_guess_test: skipped, no numpy for", sys.executable)
    sys.exit(77)

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "bench"))
import qrita_guess  # noqa: E402


def folder_with(folder, table):
    path = Path(folder, "vllm", qrita_guess.TABLE_FILE)
    path.parent.mkdir(parents=True)
    path.write_text(f"import nothing_of_this_name\n{qrita_guess.TABLE_NAME} = {table}\n")
    return folder


def run(*args):
    return subprocess.run([sys.executable, "-B", ROOT / "bench/qrita_guess.py", SLUICE, "--quick", *args],
                          capture_output=True, text=True, timeout=300, check=False)


class Guess(unittest.TestCase):
    def test_the_table_is_read_and_taken_at_200_times_p(self):
        with tempfile.TemporaryDirectory() as folder:
            table = [i / 100 for i in range(200)]
            read = qrita_guess.table_of(folder_with(folder, table))
        self.assertEqual(read, table)
        paper = qrita_guess.guesses(read)["paper"]
        self.assertEqual([paper(p) for p in (0.0, 0.5, 0.9, 1.0)], [0.0, 1.0, 1.8, 1.99])

    def test_without_a_table_nothing_is_called_the_papers(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(qrita_guess.table_of(folder))
            result = run("--vllm", folder, "--json", f"{folder}/a.json")
            rows = json.loads(Path(folder, "a.json").read_text())["rows"]
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("rows of `paper` are left out", result.stderr)
        self.assertEqual({row["guess"] for row in rows}, {"quantile", "formula"})

    def test_a_table_of_another_length_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            result = run("--vllm", folder_with(folder, [1.0, 2.0]))
        self.assertEqual(result.returncode, 1)
        self.assertIn("has 2 entries, and 200 are expected", result.stderr)

    def test_outliers_reach_the_threshold_less_a_quarter(self):
        row = np.concatenate([np.full(98, -1.0), [20.0, 25.0]]).astype(np.float32)
        mean, deviation = row.mean(dtype=np.float64), row.std(dtype=np.float64)
        reached = (20.0 - mean) / deviation / 0.75  # the smaller of the two, once the margin is off
        self.assertEqual(qrita_guess.outliers(row[None], 0.9, reached * 0.999), (2.0, 1.0))
        self.assertEqual(qrita_guess.outliers(row[None], 0.9, reached * 1.001), (1.0, 1.0))
        self.assertEqual(qrita_guess.outliers(row[None], 0.9999, reached * 1.001), (1.0, 0.0))

    def test_the_quantile_is_that_of_the_mass_of_a_normal_sample(self):
        x = np.linspace(-8, qrita_guess.MOST, 200_001)
        mass = np.exp(qrita_guess.SCALE * x - x * x / 2)
        for top_p in (0.1, 0.5, 0.9):
            above = mass[x >= qrita_guess.quantile(top_p)].sum() / mass.sum()
            self.assertAlmostEqual(above, top_p, places=3)


if __name__ == "__main__":
    unittest.main()
