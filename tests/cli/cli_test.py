#!/usr/bin/env python3
"""Runs the command sluice and looks at its output and exit codes. Usage: cli_test.py SLUICE."""

import json
import os
import re
import subprocess
import sys
import unittest
from collections import Counter

import terminal

SLUICE = ""  # path of the command, set from the command line
# Parameters must come from the test alone.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}


def run(*args, **variables):
    return subprocess.run([SLUICE, *args], env={**ENVIRONMENT, **variables}, timeout=120,
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")


def demo_json(*args):
    return json.loads(run("demo", "--json", *args).stdout)


def run_on_terminal(*args, **variables):
    """The output of a command whose standard output is a terminal."""
    return terminal.run_on_terminal([SLUICE, *args], {**ENVIRONMENT, **variables})


class Backends(unittest.TestCase):
    def test_the_environment_names_one(self):
        self.assertEqual(run("demo", SLUICE_BACKEND="ref").returncode, 0)
        result = run("demo", SLUICE_BACKEND="tpu")
        self.assertEqual(result.returncode, 2)
        self.assertIn('backend = "tpu" is not allowed: auto, cpu', result.stderr)

    def test_every_backend_draws_the_same(self):
        listed = json.loads(run("inspect", "backends", "--json").stdout)["backends"]
        texts = {run("demo", SLUICE_BACKEND=backend["name"]).stdout
                 for backend in listed if backend["available"]}
        self.assertEqual(len(texts), 1)


class Demo(unittest.TestCase):
    def test_shows_every_stage(self):
        result = run("demo")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for shown in ("logits are generated", "bad words", "repetition penalty", "min-p", "top-k",
                      "top-p", "upper", "lower", "margin", "noise", "DRAWN", "8 shards"):
            self.assertIn(shown, result.stdout)

    def test_same_seed_gives_the_same_bytes(self):
        self.assertEqual(run("demo", "--seed", "5").stdout, run("demo", "--seed", "5").stdout)

    def test_seeds_give_different_tokens(self):
        tokens = {demo_json("--seed", str(seed))["token"]["id"] for seed in range(20)}
        self.assertGreater(len(tokens), 2)

    def test_json_says_what_the_text_says(self):
        report = demo_json()
        text = run("demo").stdout
        count = report["cut"]["count"]
        self.assertEqual(int(re.search(r"kept +(\d+) tokens", text).group(1)), count)
        self.assertEqual(len(report["kept"]), count)
        self.assertEqual(report["filters"][-1]["tokens_left"], count)
        drawn = re.search(r"(\d+)  \w+ .*<- drawn", text).group(1)
        self.assertEqual(int(drawn), report["token"]["id"])
        self.assertTrue(all(proof["same"] for proof in report["proofs"]))

    def test_every_token_has_one_fate(self):
        report = demo_json("--show-candidates", "32000", "--typical-p", "0.95")
        self.assertEqual(len(report["candidates"]), report["vocab"])
        fates = Counter(c["fate"].split(", ")[-1] for c in report["candidates"])
        left = report["filters"][0]["tokens_left"]
        self.assertEqual(fates["masked by bad words"], report["vocab"] - left)
        for stage in report["filters"][1:]:
            dropped = fates["dropped by " + stage["name"]]
            self.assertEqual(dropped, left - stage["tokens_left"], stage["name"])
            left = stage["tokens_left"]
        self.assertEqual(fates["kept"], left)
        self.assertAlmostEqual(sum(c["probability"] for c in report["candidates"]), 1, places=9)

    def test_draws_add_up(self):
        report = demo_json("--top-k", "0", "--top-p", "1", "--min-p", "0")
        self.assertEqual(sum(token["times_drawn"] for token in report["kept"]), report["draws"])
        self.assertAlmostEqual(sum(token["probability"] for token in report["kept"]), 1, places=9)
        self.assertIsNone(report["mass"]["margin"])

    def test_greedy_takes_the_largest_adjusted_logit(self):
        report = demo_json("--temperature", "0")
        best = max(report["candidates"], key=lambda c: c["adjusted"] or 0)
        self.assertEqual(report["token"]["id"], best["id"])
        self.assertEqual(report["cut"]["count"], 1)

    def test_profiles_keep_all_ties_or_the_lowest_id(self):
        self.assertEqual(demo_json()["cut"]["ties_kept"], 1)
        self.assertEqual(demo_json("--profile", "hf")["cut"]["ties_kept"], 2)
        for profile in ("vllm", "hf", "sglang", "llamacpp", "tensorrt-llm"):
            result = run("demo", "--profile", profile, "--typical-p", "0.9", "--dry-multiplier",
                         "1", "--xtc-probability", "0.5", "--frequency-penalty", "-0.5")
            self.assertEqual((result.returncode, result.stderr), (0, ""), profile)

    def test_printed_command_repeats_the_run(self):
        text = run("demo", "--top-p", "1", "--profile", "sglang", "--min-p", "0").stdout
        command = re.search(r"command +sluice (.*)", text).group(1)
        self.assertEqual(run(*command.split()).stdout, text)

    def test_row_without_a_token_is_a_failure(self):
        result = run("demo", "--repetition-penalty", "1e-38")
        self.assertEqual(result.returncode, 1)
        self.assertIn("pos_inf_input", result.stderr)
        self.assertEqual(demo_json("--repetition-penalty", "1e-38")["status"], "pos_inf_input")


class Parameters(unittest.TestCase):
    def assert_usage_error(self, *args, names=(), **variables):
        result = run(*args, **variables)
        self.assertEqual((result.returncode, result.stdout), (2, ""), args)
        for name in names:
            self.assertIn(name, result.stderr)

    def test_value_out_of_range_names_what_is_allowed(self):
        self.assert_usage_error("demo", "--top-p", "1.5", names=("--top-p = 1.5", "(0, 1]"))
        self.assert_usage_error("demo", "--temperature", "2.5", names=("temperature", "[0, 2]"))
        self.assert_usage_error("demo", "--profile", "x", names=("profile", "vllm", "sglang"))
        self.assert_usage_error("demo", "--show-candidates", "-1", names=("-1", "32000"))

    def test_what_is_no_number_is_refused(self):
        for flag, value in (("--top-k", "abc"), ("--top-k", "1.5"), ("--top-k", "3000000000"),
                            ("--top-p", "0.5x"), ("--top-p", "nan"), ("--seed", "-1"),
                            ("--seed", "18446744073709551616")):
            self.assert_usage_error("demo", flag, value, names=(flag, value, "is not allowed"))

    def test_unknown_words_are_refused(self):
        for args in (["demo", "--no-such-flag"], ["demo", "extra"], ["no-such-command"], [],
                     ["inspect"], ["demo", "--top-p"], ["demo", "--top-p", "1", "--top-p", "1"]):
            self.assert_usage_error(*args)

    def test_environment_gives_what_flags_do_not(self):
        by_environment = json.loads(run("demo", "--json", SLUICE_TOP_K="3").stdout)
        self.assertEqual(by_environment["parameters"]["top_k"], 3)
        both = json.loads(run("demo", "--json", "--top-k", "4", SLUICE_TOP_K="3").stdout)
        self.assertEqual(both["parameters"]["top_k"], 4)
        self.assert_usage_error("demo", SLUICE_TOP_P="2", names=("SLUICE_TOP_P = 2 ", "(0, 1]"))

    def test_largest_seed_survives(self):
        largest = 2**64 - 1
        self.assertEqual(demo_json("--seed", str(largest))["parameters"]["seed"], largest)

    def test_help_lists_parameters(self):
        result = run("demo", "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for flag in ("--top-k", "--dry-allowed-length", "--seed", "--profile", "SLUICE_TOP_K"):
            self.assertIn(flag, result.stdout)
        self.assertIn("inspect", run("--help").stdout)
        self.assertRegex(run("--version").stdout, r"^sluice \d+\.\d+\.\d+\n$")


class Output(unittest.TestCase):
    def test_pipe_gets_plain_ascii(self):
        for args in (["demo"], ["demo", "--json"], ["inspect", "backends"]):
            text = run(*args, LC_ALL="C.UTF-8", TERM="xterm").stdout
            self.assertTrue(text.isascii())
            self.assertNotIn("\x1b", text)

    def test_terminal_gets_colours_and_bars(self):
        code, text = run_on_terminal("demo", LC_ALL="C.UTF-8", TERM="xterm", NO_COLOR="")
        self.assertEqual(code, 0)
        self.assertIn("\x1b[", text)
        self.assertIn("█", text)

    def test_terminal_without_colours_is_respected(self):
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            _, text = run_on_terminal("demo", **{"LC_ALL": "C", "TERM": "xterm", **variables})
            self.assertNotIn("\x1b", text)
            self.assertTrue(text.isascii())

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_full_disk_is_a_failure(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([SLUICE, "demo"], env=ENVIRONMENT, stdout=full,
                                    stderr=subprocess.PIPE, encoding="utf-8", timeout=120)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot write", result.stderr)

    def test_backends_are_listed(self):
        backends = json.loads(run("inspect", "backends", "--json").stdout)["backends"]
        text = run("inspect", "backends").stdout
        self.assertTrue(any(b["name"] == "ref" and b["available"] for b in backends))
        for backend in backends:
            self.assertEqual(set(backend), {"name", "available", "reason"})
            self.assertIn(backend["name"], text)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
