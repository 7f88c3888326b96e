#!/usr/bin/env python3
"""bench/front_vllm.py, with `sluice serve` as every front.

Usage: front_bench_test.py SLUICE ROOT.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
SERVE = f"{SLUICE} serve --model {{model}} --name m --port {{port}} --quiet"


def run(folder, *args, fronts=None):
    """The exit code, what it says, and what it wrote."""
    fronts = fronts or {"vllm": SERVE, "vllm-rs": SERVE, "sluice": SERVE}
    result = Path(folder, "rows.json")
    commands = [part for name, line in fronts.items() for part in ("--command", f"{name}={line}")]
    done = subprocess.run(
        [sys.executable, "-B", ROOT / "bench/front_vllm.py", "--json", result, "--model",
         f"tiny={ROOT / 'models/default'}", "--sluice", SLUICE, "--logs", folder,
         "--output-tokens", "4", *commands, *args],
        env={k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")},
        capture_output=True, text=True, timeout=600, check=False)
    return done, json.loads(result.read_text()) if result.exists() else None


def processes_of(folder):
    """Those with the folder in their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


class Fronts(unittest.TestCase):
    def test_a_row_of_each_load_and_every_second_repetition_in_reverse(self):
        with tempfile.TemporaryDirectory() as folder:
            done, found = run(folder, "--streams", "1,2", "--logprobs", "0,3", "--repetitions", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = found["rows"]
            cells = [(row["repetition"], row["streams"], row["logprobs"], row["front"])
                     for row in rows]
            names = ["vLLM", "vLLM, Rust front end", "Sluice"]
            self.assertEqual(cells, [(repetition, streams, logprobs, front)
                                     for repetition in (0, 1) for streams in (1, 2)
                                     for logprobs in (0, 3)
                                     for front in (names if repetition == 0 else names[::-1])])
            for row in rows:
                self.assertEqual((row["bench"], row["model"], row["failed"]), ("front", "tiny", 0))
                self.assertGreater(row["tokens_s"], 0)
                self.assertGreater(row["tokens_per_cpu_second"], 0)
                self.assertGreaterEqual(row["ttft_p99_ms"], row["ttft_p50_ms"])
                self.assertGreater(row["itl_p50_ms"], 0)
            self.assertEqual([start["why_not"] for start in found["starts"]], [None] * 3)
            self.assertIn("| tiny | 2 | 3 | Sluice | 2 |", done.stdout)

    def test_a_front_that_does_not_start_leaves_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            fails = f"{SLUICE} serve --model {folder}/nothing --port {{port}}"
            done, found = run(folder, "--streams", "1", "--repetitions", "1", "--front", "vllm",
                              "--front", "sluice", fronts={"vllm": fails, "sluice": SERVE})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([row["front"] for row in found["rows"]], ["Sluice"])
            self.assertIn("ended", found["starts"][0]["why_not"])
            self.assertIn("nothing", done.stdout)  # the end of its log

    def test_a_program_that_is_missing_leaves_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            done, found = run(folder, "--streams", "1", "--repetitions", "1", "--front", "vllm",
                              "--front", "sluice",
                              fronts={"vllm": f"{folder}/no-such {{port}}", "sluice": SERVE})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([row["front"] for row in found["rows"]], ["Sluice"])
            self.assertIn("no-such", found["starts"][0]["why_not"])

    def test_it_ends_in_its_time_with_what_it_has_and_leaves_no_process(self):
        with tempfile.TemporaryDirectory() as folder:
            # 21 seconds, of which 20 are for the end of engines: no load fits.
            line = f"{SERVE} --access-log {folder}/log"
            done, found = run(folder, "--streams", "1", "--repetitions", "1000", "--front",
                              "sluice", "--seconds", "21", fronts={"sluice": line})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLess(len(found["rows"]), 1000)
            self.assertEqual(processes_of(folder), [])


if __name__ == "__main__":
    unittest.main()
