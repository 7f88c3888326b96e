#!/usr/bin/env python3
"""sluice tokenize and detokenize, run as a user runs them. Usage: text_test.py SLUICE ROOT."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = sys.argv.pop(1), Path(sys.argv.pop(1))
TOKENIZER = str(ROOT / "tests/fixtures/tokenizers/llama3.json")
TIKTOKEN = str(ROOT / "tests/fixtures/tokenizers/gpt2.tiktoken")
TEXT = "for (int i = 0; 你 😀\n"


def run(*args, text=""):
    return subprocess.run([SLUICE, *args], input=text.encode(), capture_output=True, timeout=180)


class Text(unittest.TestCase):

    def test_text_survives_the_way_there_and_back(self):
        ids = run("tokenize", TOKENIZER, text=TEXT).stdout
        self.assertEqual(run("detokenize", TOKENIZER, text=ids.decode()).stdout.decode(), TEXT)
        listed = json.loads(run("tokenize", TOKENIZER, "--json", text=TEXT).stdout)["ids"]
        self.assertEqual(listed, [int(id) for id in ids.split()])
        as_json = run("detokenize", TOKENIZER, "--json", text=json.dumps(listed + [10**6])).stdout
        self.assertEqual(json.loads(as_json), {"text": TEXT, "unknown_ids": 1})
        plain = run("detokenize", TOKENIZER, ",".join(map(str, listed)), str(10**6))
        self.assertEqual((plain.stdout.decode(), plain.stderr.decode()),
                         (TEXT, "sluice: ids without a token were left out: 1\n"))

    def test_text_and_ids_may_be_arguments(self):
        ids = run("tokenize", TOKENIZER, TEXT).stdout
        self.assertGreater(len(ids.split()), 3)
        self.assertEqual(ids, run("tokenize", TOKENIZER, text=TEXT).stdout)
        self.assertEqual(ids, run("tokenize", TOKENIZER, "-", text=TEXT).stdout)
        words = ids.decode().split()
        self.assertEqual(run("detokenize", TOKENIZER, *words).stdout.decode(), TEXT)
        self.assertEqual(run("detokenize", TOKENIZER, ",".join(words)).stdout.decode(), TEXT)
        self.assertEqual(run("detokenize", TOKENIZER, "-", text=ids.decode()).stdout.decode(), TEXT)
        empty = run("tokenize", TOKENIZER, "", "--no-special-tokens", text=TEXT)
        self.assertEqual((empty.returncode, empty.stdout), (0, b"\n"))
        both = run("tokenize", TOKENIZER, TEXT, "--input", "-", text=TEXT)
        self.assertEqual((both.returncode, both.stdout), (2, b""))

    def test_a_folder_stands_for_its_tokenizer(self):
        folder = ROOT / "models/default"
        ids = run("tokenize", str(folder), TEXT)
        self.assertEqual((ids.returncode, ids.stdout), (0, run("tokenize", str(folder / "tokenizer.json"), TEXT).stdout))
        self.assertEqual(run("detokenize", str(folder), text=ids.stdout.decode()).stdout.decode(), TEXT)
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(run("tokenize", empty, "a").stderr.decode(), f"sluice: not a file but a folder: {empty}\n")

    def test_special_tokens_are_parsed_and_shown_when_asked_for(self):
        def ids(*flags):
            return run("tokenize", TOKENIZER, *flags, text="<|end|>").stdout.split()
        self.assertEqual(len(ids("--parse-special-tokens")), 2)
        self.assertEqual(len(ids("--parse-special-tokens", "--no-special-tokens")), 1)
        self.assertGreater(len(ids()), 2)
        shown = run("detokenize", TOKENIZER, "--show-special-tokens",
                    text=ids("--parse-special-tokens")[1].decode())
        self.assertEqual(shown.stdout, b"<|end|>")

    def test_tiktoken_files_take_their_pattern_and_special_tokens(self):
        flags = ("--pattern", r"\w+|\W+", "--special-token", "<a=b>=1000", "--special-token", "<c>=1001")
        ids = run("tokenize", TIKTOKEN, *flags, "--parse-special-tokens", text="ab<a=b>ab<c>").stdout
        self.assertEqual([int(id) for id in ids.split()[-1:]], [1001], ids)
        self.assertIn(b"1000", ids)
        text = run("detokenize", TIKTOKEN, *flags, "--show-special-tokens", text=ids.decode()).stdout
        self.assertEqual(text, b"ab<a=b>ab<c>")

    def test_what_is_wrong_is_named(self):
        for args, text, words in [
                (("tokenize", "/nowhere"), "", "no such file: /nowhere"),
                (("tokenize", TOKENIZER, "--decoder", "sp"), "", "--decoder"),
                (("detokenize", TOKENIZER), "1 2 x3", 'ids = "x3"'),
                (("detokenize", TOKENIZER), "99999999999",
                 'ids = "99999999999" is not allowed: [-2147483648, 2147483647]'),
                (("tokenize", TIKTOKEN, "--special-token", "<end>"), "", "special-token"),
                (("tokenize", TOKENIZER, "--input", "/nowhere"), "", "no such file: /nowhere")]:
            result = run(*args, text=text)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn(words, result.stderr.decode())

    def test_bench_writes_its_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bench.json")
            result = run("bench", "detok", TOKENIZER, str(ROOT / "README.md"), "--quick", "--json",
                         str(path))
            self.assertEqual(result.returncode, 0, result.stderr)
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        self.assertEqual({row["bench"] for row in rows}, {"detok"})
        # With stops, what is beyond detokenising: a difference, which may be nothing or less.
        self.assertTrue(all(row["ns"] + row.get("detokenise_ns", 0) > 0 for row in rows))


if __name__ == "__main__":
    unittest.main()
