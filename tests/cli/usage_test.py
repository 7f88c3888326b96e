#!/usr/bin/env python3
"""What sluice says of a command line that it does not understand, and its help. Usage: usage_test.py SLUICE ROOT."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = os.path.abspath(sys.argv.pop(1)), Path(sys.argv.pop(1))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
LOGITS = str(ROOT / "tests/fixtures/logits.npy")


def run(*args, folder=None, **variables):
    return subprocess.run([SLUICE, *args], env={**ENVIRONMENT, **variables}, timeout=120, cwd=folder,
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")


def commands_of(text):
    """The commands that a help text lists, in its groups."""
    return re.findall(r"^  ([a-z][\w-]*) ", "".join(re.findall(r"\nCommands[^\n]*:\n((?:  .*\n)+)", text)),
                      re.MULTILINE)


def all_commands(path=()):
    """Every command with its help, as ("bench", "select")."""
    text = run(*path, "--help").stdout
    yield path, text
    for name in commands_of(text):
        yield from all_commands((*path, name))


COMMANDS = dict(all_commands())
HAS_MODELS = ("generate",) in COMMANDS
HAS_SERVER = ("serve",) in COMMANDS
HAS_BUILT_IN = HAS_MODELS and run("inspect", "model").returncode == 0


class Errors(unittest.TestCase):
    def error(self, *args, code=2, **options):
        """The first line on standard error, where there may be a hint on a second one."""
        result = run(*args, **options)
        self.assertEqual((args, result.returncode, result.stdout), (args, code, ""), result.stderr)
        first, *hints = result.stderr.splitlines()
        self.assertTrue(first.startswith("sluice: "), first)
        self.assertLessEqual(len(hints), 1, result.stderr)
        for hint in hints:
            self.assertRegex(hint, r"^See sluice [a-z -]*--help$")
            self.assertEqual(run(*hint.split()[2:]).returncode, 0, hint)
        return first.removeprefix("sluice: ")

    def test_unknown_commands_have_a_suggestion(self):
        for args, said in [(("exlpain",), "unknown command 'exlpain'; did you mean 'explain'?"),
                           (("dmeo", "--seed", "3"), "unknown command 'dmeo'; did you mean 'demo'?"),
                           (("bench", "selct"), "unknown command 'selct'; did you mean 'select'?"),
                           (("completely-else",), "unknown command 'completely-else'")]:
            self.assertEqual(self.error(*args), said)
        if HAS_MODELS:
            self.assertEqual(self.error("genrate", "hi"), "unknown command 'genrate'; did you mean 'generate'?")

    def test_unknown_flags_have_a_suggestion_and_come_first(self):
        for args, said in [
                (("demo", "--topk", "5"), "unknown flag '--topk'; did you mean '--top-k'?"),
                (("demo", "--top_k=5"), "unknown flag '--top_k'; did you mean '--top-k'?"),
                (("demo", "--temp", "1"), "unknown flag '--temp'; did you mean '--temperature'?"),
                (("demo", "--nothing-like-it"), "unknown flag '--nothing-like-it'"),
                (("demo", "-k", "5"), "unknown flag '-k'"),
                (("demo", "-seed", "5"), "unknown flag '-seed'; did you mean '--seed'?"),
                (("--verson",), "unknown flag '--verson'; did you mean '--version'?"),
                # That --id is missing is because it is misspelt.
                (("explain", LOGITS, "--di", "3"), "unknown flag '--di'; did you mean '--id'?"),
                (("explain", LOGITS, "--idd", "3"), "unknown flag '--idd'; did you mean '--id'?"),
                (("bench", "select", "--task", "draw", "--quik"), "unknown flag '--quik'; did you mean '--quick'?")]:
            self.assertEqual(self.error(*args), said)
        if HAS_SERVER:
            self.assertEqual(self.error("serve", "--modle", "x"), "unknown flag '--modle'; did you mean '--model'?")

    def test_values_of_choices_have_a_suggestion(self):
        for args, said in [
                (("demo", "--profile", "vlm"), '--profile = "vlm" is not allowed: vllm, hf, sglang, llamacpp or '
                                               "tensorrt-llm; did you mean 'vllm'?"),
                (("demo", "--draw-method", "gumble"), '--draw-method = "gumble" is not allowed: gumbel or cdf; did '
                                                      "you mean 'gumbel'?"),
                (("completion", "zhs"), 'SHELL = "zhs" is not allowed: bash, zsh or fish; did you mean \'zsh\'?')]:
            self.assertEqual(self.error(*args), said)
        self.assertIn("did you mean 'quickselect'?", self.error("inspect", LOGITS, "--algorithm", "quickselct"))
        self.assertIn("did you mean 'fp32'?", self.error("bench", "select", "--dtype", "bf16,f32"))

    def test_what_is_missing_is_named(self):
        for args, said in [
                (("explain", LOGITS), "missing --id: give the token's id"),
                (("explain", "--id", "3"), "missing FILE: give a .npy file of logits: float32, float16 or bfloat16"),
                (("inspect",), "missing FILE: give a .npy file of logits, or the command backends, params or model"),
                (("completion",), "missing SHELL: give the shell: bash, zsh or fish"),
                (("demo", "--profile"), "missing value of --profile: give vllm, hf, sglang, llamacpp or tensorrt-llm"),
                (("demo", "--top-p"), "missing value of --top-p: give a number"),
                (("bench", "rows"), "missing --output: give a file for the rows, in fp32; FILE.json describes them")]:
            self.assertEqual(self.error(*args), said)
        if HAS_MODELS:
            self.assertEqual(self.error("generate"),
                             "missing PROMPT: give a text, '-' for standard input, or --prompt-file FILE")

    def test_other_uses_that_are_wrong_are_sentences(self):
        for args, said in [
                (("demo", "--top-p", "1", "--top-p", "1"), "--top-p is given more than once"),
                (("demo", "extra"), "unexpected argument 'extra'"),
                (("demo", "--show-candidates", "many"),
                 '--show-candidates = "many" is not allowed: a whole number in [0, 32000]'),
                (("demo", "--json=perhaps"), '--json = "perhaps" is not allowed: the flag without a value'),
                (("inspect", "params", "--json", "--markdown"), "--json excludes --markdown: give one of them")]:
            self.assertEqual(self.error(*args), said)
        if HAS_SERVER:
            self.assertEqual(self.error("bench", "serve", "--rate", "3"), "--rate needs --url")
        if HAS_MODELS:
            self.assertEqual(self.error("generate", "Once", "upon"),
                             "unexpected argument 'upon'; a text of several words needs quotes around it")

    @unittest.skipIf(HAS_SERVER, "built with the server")
    def test_a_command_of_other_builds_is_named(self):
        self.assertEqual(self.error("serve", "--port", "1"), "this build has no command 'serve'; it has all of them "
                         "where the packages of `scripts/setup.sh build` are installed")
        self.assertIn("unknown command 'serv'", self.error("serv"))

    def test_files_and_folders_that_do_not_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "text").write_text("{")
            self.assertEqual(self.error("inspect", "row.npy", folder=folder), "no such file: row.npy")
            self.assertEqual(self.error("inspect", folder), "not a file but a folder: " + folder)
            self.assertEqual(self.error("bench", "algorithms", "--rows-file", "row.npy", folder=folder),
                             "no such file: row.npy")
            if not HAS_MODELS:  # nor JSON
                return
            self.assertEqual(self.error("demo", "--params", "none.json", folder=folder), "no such file: none.json")
            self.assertRegex(self.error("demo", "--params", "text", folder=folder),
                             r"^text: malformed \(.*\); expected one JSON object in UTF-8$")
            for args in (("generate", "hi", "--model"), ("inspect", "model"), ("inspect", "model", "--model")):
                self.assertEqual(self.error(*args, "nowhere", folder=folder), "no such folder: nowhere")
                self.assertIn("not a folder: text; a model is a folder with config.json",
                              self.error(*args, "text", folder=folder))
                self.assertIn("no model in the folder: .; a model is a folder with config.json",
                              self.error(*args, ".", folder=folder))
            # Nothing is generated first.
            self.assertEqual(self.error("generate", "hi", "--max-tokens", "1", "--record", "none/file", folder=folder),
                             "cannot write none/file: No such file or directory")

    @unittest.skipUnless(HAS_MODELS, "built without models")
    def test_a_name_of_the_hub_says_how_to_get_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            said = ("no such folder: Qwen/Qwen3-0.6B. Models are read from folders: hf download Qwen/Qwen3-0.6B "
                    "--local-dir Qwen3-0.6B, then --model Qwen3-0.6B")
            self.assertEqual(self.error("generate", "hi", "--model", "Qwen/Qwen3-0.6B", folder=folder), said)
            self.assertEqual(self.error("generate", "hi", SLUICE_MODEL="Qwen/Qwen3-0.6B", folder=folder), said)
            if HAS_SERVER:
                self.assertEqual(self.error("serve", "--model", "Qwen/Qwen3-0.6B", folder=folder), said)
            Path(folder, "mine").mkdir()
            for path in ("/models/qwen", "./models/qwen", "models/qwen/chat", "~/qwen", "../qwen", "mine/qwen"):
                self.assertEqual(self.error("generate", "hi", "--model", path, folder=folder),
                                 "no such folder: " + path)


class Help(unittest.TestCase):
    def test_without_a_command_they_are_listed(self):
        for path in ((), ("bench",)):
            result = run(*path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual(result.stderr, COMMANDS[path])
            self.assertGreater(len(commands_of(result.stderr)), 3)

    def test_commands_for_users_come_first_and_apart(self):
        user, developer = re.findall(r"\nCommands[^\n]*:\n((?:  .*\n)+)", COMMANDS[()])
        for name in ("inspect", "explain", "demo", "completion"):
            self.assertRegex(user, rf"(?m)^  {name} ")
        self.assertRegex(developer, r"(?m)^  bench ")
        self.assertNotRegex(user, r"(?m)^  (bench|trace|replay|mock-engine) ")

    def test_every_command_has_an_example_that_it_takes(self):
        self.assertGreater(len(COMMANDS), 12)
        for path, text in COMMANDS.items():
            self.assertIn("\nExamples:\n", text, path)
            examples = text.split("\nExamples:\n")[1].splitlines()
            self.assertIn(len(examples), (1, 2, 3), path)
            for example in examples:
                words = shlex.split(example.split(" < ")[0].split(" > ")[0])
                self.assertEqual(words[0], "sluice", example)
                used = tuple(words[1:])
                while used not in COMMANDS:
                    used = used[:-1]
                # One example of engine is that of the client.
                self.assertTrue(used[:len(path)] == path or path == ("engine",), example)
                for flag in (word for word in words if word.startswith("--")):
                    self.assertRegex(COMMANDS[used], rf"(?m)^  (-\w, )?{flag}\b", example)

    def test_nothing_of_the_parser_shows(self):
        for path, text in COMMANDS.items():
            for raw in (r"\{", r"\[\[", r":INT", r" in \[", r"REQUIRED", r"SUBCOMMAND", r"Positionals", r"\(Env:",
                        r"Excludes:", r"Needs:", r"\n\n\n", r"Print this help", r"model inside", r"embedded model"):
                self.assertNotRegex(text, raw, path)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 120, (path, line))

    def test_flags_list_their_values(self):
        """Of a flag that refuses a word with a list of names, the help has every name."""
        seen = set()
        for path, text in COMMANDS.items():
            for flag, entry in re.findall(r"(?m)^  (--[\w-]+) NAME((?:.*\n)(?: {34}.*\n)*)", text):
                refused = run(*path, flag, "no-such-name").stderr
                self.assertIn("is not allowed: ", refused)
                names = re.split(r", | or ", refused.split("is not allowed: ")[1].split("\n")[0].split(";")[0])
                self.assertGreater(len(names), 1, refused)
                for name in names:
                    self.assertIn(name, entry, (path, flag))
                seen.add(flag)
        self.assertTrue({"--profile", "--draw-method", "--backend", "--algorithm", "--dtype"} <= seen, seen)
        if HAS_MODELS:
            self.assertTrue({"--head", "--weights", "--generation-config", "--format"} <= seen, seen)

    def test_flags_that_are_required_say_so(self):
        self.assertIn("the token's id (required)\n", COMMANDS["explain",])
        self.assertNotIn("(required)", COMMANDS["demo",])

    def test_seeds_are_what_they_are(self):
        for path in (("inspect",), ("explain",)):
            self.assertRegex(COMMANDS[path], r"--seed INT \[0\] +the same seed draws the same token\n")
        drawn = [run("inspect", LOGITS, *seed).stdout for seed in ((), ("--seed", "0"))]
        self.assertEqual(*drawn)
        self.assertIn("at seed 0,", drawn[0])

    @unittest.skipUnless(HAS_BUILT_IN, "built without the built-in model")
    def test_defaults_are_those_of_the_model(self):
        samples = re.search(r"samples with +(.*)", run("inspect", "model").stdout)[1].split()
        for flag, value in zip(samples[::2], samples[1::2]):
            self.assertRegex(COMMANDS["generate",], rf"{flag} \w+ \[{re.escape(value)}\]")
            plain = run("generate", "--generation-config", "vllm", "--help").stdout
            self.assertNotRegex(plain, rf"{flag} \w+ \[{re.escape(value)}\]")
        self.assertIn("generation_config.json", COMMANDS["generate",])

    @unittest.skipUnless(HAS_BUILT_IN and HAS_SERVER, "built without the built-in model, or the server")
    def test_the_built_in_model_is_what_the_help_says(self):
        parameters = json.loads(run("inspect", "model", "--json").stdout)["parameters"]
        self.assertIn(f"a story model of {parameters / 1e6:.1f}M parameters", COMMANDS["serve",])


if __name__ == "__main__":
    unittest.main()
