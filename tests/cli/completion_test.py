#!/usr/bin/env python3
"""Sources the completion script in bash and calls its function. Usage: completion_test.py SLUICE."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SLUICE = ""
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
PRINT = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_sluice
printf '%s\\n' "${COMPREPLY[@]}"
"""


@unittest.skipUnless(shutil.which("bash"), "no bash here")
class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.script = os.path.join(cls.folder.name, "completion.sh")
        text = subprocess.run([SLUICE, "completion", "bash"], check=True, capture_output=True,
                              env=ENVIRONMENT, stdin=subprocess.DEVNULL).stdout
        with open(cls.script, "wb") as file:
            file.write(text)
        with open(os.path.join(cls.folder.name, "row.npy"), "wb"):
            pass

    def completed(self, *words):
        """What bash offers for the last of the words behind sluice."""
        result = subprocess.run(["bash", "-u", "-c", PRINT, "bash", self.script, "sluice", *words],
                                check=True, capture_output=True, encoding="utf-8",
                                cwd=self.folder.name)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def help(self, *words):
        return subprocess.run([SLUICE, *words, "--help"], check=True, capture_output=True,
                              env=ENVIRONMENT, encoding="utf-8").stdout

    def test_subcommands_are_those_of_the_help(self):
        for command in ((), ("bench",), ("inspect",)):
            listed = re.findall(r"^  (\w+) ", self.help(*command).split("Subcommands:")[1],
                                re.MULTILINE)
            self.assertTrue(set(listed) <= set(self.completed(*command, "")), command)
        self.assertEqual(self.completed("ex"), ["explain"])
        self.assertEqual(self.completed("bench", "sel"), ["select"])

    def test_flags_are_those_of_the_help(self):
        for command in (("demo",), ("explain",), ("inspect",), ("inspect", "params"),
                        ("bench", "rows"), ("bench", "tune")):
            listed = set(re.findall(r"(?:^  |,)(--[\w-]+)", self.help(*command), re.MULTILINE))
            self.assertEqual(set(self.completed(*command, "--")), listed, command)

    def test_values_of_choices_are_offered(self):
        self.assertEqual(self.completed("demo", "--profile", "v"), ["vllm"])
        self.assertEqual(self.completed("explain", "--profile", ""),
                         ["vllm", "hf", "sglang", "llamacpp", "tensorrt-llm"])
        self.assertIn("cpu-avx2", self.completed("inspect", "--backend", "cpu"))
        self.assertEqual(self.completed("inspect", "--algorithm", "quick"),
                         ["quick_find_max", "quickselect"])
        self.assertEqual(self.completed("demo", "--draw-method", "c"), ["cdf"])
        self.assertIn("top-50", self.completed("bench", "select", "--task", "top"))
        self.assertEqual(self.completed("completion", "b"), ["bash"])

    def test_an_equals_sign_and_a_list_are_no_obstacle(self):
        self.assertEqual(self.completed("demo", "--profile", "=", "v"), ["vllm"])
        self.assertEqual(self.completed("demo", "--profile", "="),
                         ["vllm", "hf", "sglang", "llamacpp", "tensorrt-llm"])
        self.assertEqual(self.completed("bench", "select", "--dtype", "fp32,b"), ["fp32,bf16"])

    def test_files_are_offered_where_one_is_taken(self):
        for words in (("inspect", "r"), ("explain", "r"), ("demo", "--params", "r"),
                      ("explain", "--id", "3", "r"), ("bench", "rows", "--output", "r")):
            self.assertIn("row.npy", self.completed(*words), words)
        for words in (("demo", "r"), ("demo", "--top-k", ""), ("inspect", "--row", "r")):
            self.assertNotIn("row.npy", self.completed(*words), words)

    def test_behind_a_flag_without_a_value_all_is_offered_as_before(self):
        self.assertEqual(self.completed("demo", "--json", "--prof"), ["--profile"])
        self.assertIn("row.npy", self.completed("inspect", "--json", "r"))
        self.assertEqual(self.completed("demo", "--top-k", "--prof"), [])

    def test_another_shell_is_refused(self):
        result = subprocess.run([SLUICE, "completion", "tcsh"], capture_output=True,
                                encoding="utf-8", env=ENVIRONMENT)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("bash", result.stderr)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
