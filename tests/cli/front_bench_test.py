#!/usr/bin/env python3
"""bench/front_vllm.py and bench/front_compare.py, with `sluice serve` as every front.

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
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/cli")]
import front_compare  # noqa: E402
import front_shapes  # noqa: E402
import served  # noqa: E402

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

    def test_a_load_may_have_log_probabilities_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            done, found = run(folder, "--streams", "1,2,2:20", "--repetitions", "1", "--front",
                              "sluice")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["streams"], row["logprobs"]) for row in found["rows"]],
                             [(1, 0), (2, 0), (2, 20)])

    def test_shapes_are_models_that_sluice_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            for shape, width in (("0.1b", 1024), ("1b", 2048), ("8b", 4096)):
                its = front_shapes.write(shape, Path(folder, shape))
                config = json.loads(Path(its, "config.json").read_text())
                self.assertEqual((config["hidden_size"], config["vocab_size"]), (width, 8192))
                said = subprocess.run([SLUICE, "tokenize", its, "It was"],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(said.returncode, 0, said.stderr)

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


class Compare(unittest.TestCase):
    def test_a_server_does_not_differ_from_itself(self):
        with served.Server(SLUICE, "--model", str(ROOT / "models/default")) as server:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-B", ROOT / "bench/front_compare.py", server.url, server.url,
                     "--json", f"{folder}/out.json", "--markdown", f"{folder}/out.md"],
                    capture_output=True, text=True, timeout=600, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                found = json.loads(Path(folder, "out.json").read_text())
                statuses = {result["case"]: result["first"]["status"] for result in found["results"]}
                self.assertEqual((statuses["completion"], statuses["refused: n 0"]), (200, 400))
                count = len(found["results"])
                self.assertIn(f"{count} of {count} are equal", Path(folder, "out.md").read_text())

    def test_differences_are_places_but_for_ids_and_times(self):
        left = {"id": "a", "created": 1, "choices": [{"text": "x", "logprob": -1.0}], "only": 1}
        right = {"id": "b", "created": None, "choices": [{"text": "y", "logprob": -1.0001}, {}]}
        self.assertEqual(front_compare.differences(left, right), [
            ("choices.length", 1, 2), ("choices[0].text", "x", "y"), ("created", 1, None),
            ("only", 1, "(missing)")])
        answers = [{"status": status, "type": "application/json",
                    "body": {"error": {"message": message, "param": None}}}
                   for status, message in ((400, "one"), (422, "other"))]
        self.assertEqual(front_compare.compare(*answers, "/v1/completions"), [("status", 400, 422)])
        streams = [{"status": 200, "type": "text/event-stream", "body": [
            {"choices": [{"index": 0, "text": text}]} for text in texts] + ["[DONE]"]}
            for texts in (("ab", "c"), ("a", "b", "c"), ("a", "b", "d"))]
        self.assertEqual(front_compare.compare(*streams[:2], "/v1/completions"), [])
        self.assertEqual(front_compare.compare(*streams[1:], "/v1/completions"),
                         [("stream.texts.text 0", "abc", "abd")])


if __name__ == "__main__":
    unittest.main()
