#!/usr/bin/env python3
"""Completion as bash, zsh and fish do it with the scripts of the command. Usage: completion_test.py SLUICE."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SLUICE = ""
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
PRINT = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_sluice
printf '%s\\n' "${COMPREPLY[@]}"
"""


# Zsh completes inside its line editor alone: a stand-in for what the function calls there prints what it would
# offer. `words` and CURRENT are as zsh sets them.
PRINT_ZSH = """
compdef() { :; }
compset() { [[ ${words[CURRENT]} == ${~2}* ]] && words[CURRENT]=${words[CURRENT]##${~2}}; return 0; }
_describe() { local word; for word in ${(P)2}; do
  word=${word%%:*}; [[ $word == ${words[CURRENT]}* ]] && print -r -- $word; done; return 0; }
_files() { print -rl -- ${words[CURRENT]}*(N); }
source $1; shift
words=("$@"); CURRENT=$#
_sluice || true
"""


def script(shell):
    return subprocess.run([SLUICE, "completion", shell], check=True, capture_output=True,
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL).stdout


def help_of(*words):
    return subprocess.run([SLUICE, *words, "--help"], check=True, capture_output=True,
                          env=ENVIRONMENT, encoding="utf-8").stdout


class Completion:
    """What every shell completes: a shell has completed(*words), what it offers for the last word."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.script = os.path.join(cls.folder.name, "completion")
        with open(cls.script, "wb") as file:
            file.write(script(cls.SHELL))
        with open(os.path.join(cls.folder.name, "row.npy"), "wb"):
            pass

    def run_shell(self, *command, **options):
        result = subprocess.run([self.SHELL, *command], check=True, capture_output=True,
                                encoding="utf-8", cwd=self.folder.name, timeout=60, **options)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def test_subcommands_are_those_of_the_help(self):
        for command in ((), ("bench",), ("inspect",)):
            text = help_of(*command)
            listed = re.findall(r"^  ([\w-]+) ", text[text.index("\nCommands:"):].split("Examples:")[0],
                                re.MULTILINE)
            self.assertGreaterEqual(len(listed), 2)
            self.assertTrue(set(listed) <= set(self.completed(*command, "")), command)
        self.assertEqual(self.completed("ex"), ["explain"])
        self.assertEqual(self.completed("bench", "sel"), ["select"])

    def test_flags_are_those_of_the_help(self):
        for command in (("demo",), ("explain",), ("inspect",), ("inspect", "params"),
                        ("bench", "rows"), ("bench", "tune")):
            listed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_of(*command), re.MULTILINE))
            self.assertEqual(set(self.completed(*command, "--")), listed, command)

    def test_flags_are_offered_after_a_dash_or_where_nothing_else_is(self):
        for words in (("",), ("bench", ""), ("inspect", ""), ("completion", "")):
            self.assertEqual([word for word in self.completed(*words) if word.startswith("-")], [], words)
        for words in (("demo", ""), ("demo", "-"), ("inspect", "-"), ("-",)):
            if self.SHELL != "fish" or words[-1]:  # fish offers flags after a dash alone
                self.assertIn("--help", self.completed(*words), words)

    def test_values_of_choices_are_offered(self):
        self.assertEqual(self.completed("demo", "--profile", "v"), ["vllm"])
        self.assertCountEqual(self.completed("explain", "--profile", ""),
                              ["vllm", "hf", "sglang", "llamacpp", "tensorrt-llm"])
        self.assertIn("cpu-avx2", self.completed("inspect", "--backend", "cpu"))
        self.assertCountEqual(self.completed("inspect", "--algorithm", "quick"),
                              ["quick_find_max", "quickselect"])
        self.assertEqual(self.completed("demo", "--draw-method", "c"), ["cdf"])
        self.assertIn("top-50", self.completed("bench", "select", "--task", "top"))
        self.assertEqual(self.completed("completion", "b"), ["bash"])
        self.assertIn("dither4", self.completed("bench", "head", "--planes", "d"))
        self.assertEqual(self.completed("bench", "select", "--dtype", "fp32,b"), ["fp32,bf16"])

    def test_files_are_offered_where_one_is_taken(self):
        for words in (("inspect", "r"), ("explain", "r"), ("demo", "--params", "r"),
                      ("explain", "--id", "3", "r"), ("bench", "rows", "--output", "r")):
            self.assertIn("row.npy", self.completed(*words), words)
        for words in (("demo", "r"), ("demo", "--top-k", ""), ("inspect", "--row", "r")):
            self.assertNotIn("row.npy", self.completed(*words), words)

    def test_after_a_flag_without_a_value_all_is_offered_as_before(self):
        self.assertEqual(self.completed("demo", "--json", "--prof"), ["--profile"])
        self.assertIn("row.npy", self.completed("inspect", "--json", "r"))


@unittest.skipUnless(shutil.which("bash"), "no bash here")
class Bash(Completion, unittest.TestCase):
    SHELL = "bash"

    def completed(self, *words):
        return self.run_shell("-u", "-c", PRINT, "bash", self.script, "sluice", *words).split()

    def test_where_a_value_belongs_no_flag_is_offered(self):
        self.assertEqual(self.completed("demo", "--top-k", "--prof"), [])

    def test_an_equals_sign_is_no_obstacle(self):
        self.assertEqual(self.completed("demo", "--profile", "=", "v"), ["vllm"])
        self.assertEqual(self.completed("demo", "--profile", "="),
                         ["vllm", "hf", "sglang", "llamacpp", "tensorrt-llm"])


@unittest.skipUnless(shutil.which("zsh"), "no zsh here")
class Zsh(Completion, unittest.TestCase):
    SHELL = "zsh"

    def completed(self, *words):
        offered = self.run_shell("-f", "-c", PRINT_ZSH, "zsh", self.script, "sluice", *words).split()
        *before, _ = ["", *words[-1].rsplit(",", 1)] if "," in words[-1] else [""]
        return [",".join([*filter(None, before), word]) for word in offered]

    def test_an_equals_sign_is_no_obstacle(self):
        self.assertEqual(self.completed("demo", "--profile=v"), ["vllm"])

    def test_the_line_editor_completes(self):
        """A tab in an interactive zsh."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder.name)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**ENVIRONMENT, "TERM": "dumb", "PS1": "ready> "})
        try:
            os.write(terminal, b"autoload -U compinit; compinit -u -D; source ./completion; echo do''ne\n")
            self.assertIn(b"done", self.read_until(terminal, b"done\r"))
            os.write(terminal, b": ; sluice bench tun\t --ou\t")
            self.assertIn(b"tune", self.read_until(terminal, b"--output"))
        finally:
            os.close(terminal)
            os.waitpid(pid, 0)

    def read_until(self, terminal, wanted):
        text, end = b"", time.monotonic() + 120
        while wanted not in text and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                text += os.read(terminal, 1 << 16)
        self.assertIn(wanted, text)
        return text


@unittest.skipUnless(shutil.which("fish"), "no fish here")
class Fish(Completion, unittest.TestCase):
    SHELL = "fish"

    def completed(self, *words):
        line = " ".join(["sluice", *words[:-1], words[-1]])
        offered = self.run_shell("--no-config", "-c", "source $argv[1]; complete -C $argv[2]", self.script, line,
                                 env={**ENVIRONMENT, "HOME": self.folder.name})
        # A flag of one letter as well, which no other shell's script offers.
        return [word for word in (entry.split("\t")[0] for entry in offered.splitlines())
                if not re.fullmatch(r"-\w", word)]

    def test_what_is_offered_is_described(self):
        offered = self.run_shell("--no-config", "-c", "source $argv[1]; complete -C 'sluice exp'", self.script)
        self.assertEqual(offered, "explain\tshow which rule kept or dropped a token of a row, and by how much\n")


class Scripts(unittest.TestCase):
    """What needs no shell: all three scripts have every command, flag and value."""

    def test_each_has_every_command_and_value(self):
        for shell in ("bash", "zsh", "fish"):
            text = script(shell).decode()
            words = ["sluice bench algorithms", "algorithms", "cpu-avx2", "tensorrt-llm", "few_distinct"]
            if "generate" in help_of():
                words += ["sluice bench trained-head", "parse-special-tokens", "as-stored"]
            for word in words:
                self.assertIn(word, text, shell)
            self.assertNotIn("relay-progress", text, shell)  # not for people

    def test_another_shell_is_refused(self):
        result = subprocess.run([SLUICE, "completion", "tcsh"], capture_output=True,
                                encoding="utf-8", env=ENVIRONMENT)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("bash, zsh or fish", result.stderr)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
