#!/usr/bin/env python3
"""The flags of sluice generate that give an output its grammar. Usage: grammar_test.py SLUICE ROOT."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
LIBRARY = ROOT / "build/python-venv"
HAS_LIBRARY = bool(list(LIBRARY.glob("lib/python*/site-packages/xgrammar/libxgrammar_bindings.so")))
HAS_MODEL = subprocess.run([SLUICE, "inspect", "model"], capture_output=True).returncode == 0
FOLDER = tempfile.TemporaryDirectory()
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["name", "age"]}


def file(name, text):
    path = Path(FOLDER.name, name)
    path.write_text(text)
    return str(path)


def run(*args, **variables):
    return subprocess.run([SLUICE, "generate", "The king was", "--quiet", "--seed", "1", *args],
                          env={**ENVIRONMENT, **variables}, timeout=300, stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8")


class Flags(unittest.TestCase):
    def error(self, *args, code=2, **variables):
        result = run(*args, **variables)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        return result.stderr.splitlines()[0]

    def test_one_of_them_is_given(self):
        flags = [("--json-schema", "x"), ("--json-object",), ("--grammar", "x"), ("--regex", "a"),
                 ("--choice", "a")]
        for one in flags:
            for other in flags:
                if one != other:
                    self.assertRegex(self.error(*one, *other),
                                     r"^sluice: --[a-z-]+ excludes --[a-z-]+: give one of them$")

    def test_a_file_that_is_not_there(self):
        for flag in ("--json-schema", "--grammar"):
            self.assertEqual(self.error(flag, "/nowhere/x"), "sluice: no such file: /nowhere/x")

    @unittest.skipUnless(HAS_MODEL, "this build has no built-in model")
    def test_without_the_library_it_says_how_to_get_it_and_where_it_looked(self):
        said = self.error("--regex", "a", code=1)
        self.assertIn("pip install --no-deps xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2", said)
        self.assertIn(f"not found in {Path(SLUICE).parent.parent}", said)
        self.assertIn("--grammar-library = \"/nowhere\"",
                      self.error("--regex", "a", "--grammar-library", "/nowhere", code=1))
        self.assertIn("SLUICE_GRAMMAR_LIBRARY = \"/nowhere\"",
                      self.error("--regex", "a", SLUICE_GRAMMAR_LIBRARY="/nowhere", code=1))


@unittest.skipUnless(HAS_MODEL and HAS_LIBRARY, "no built-in model, or no xgrammar in build/python-venv")
class Outputs(unittest.TestCase):
    where = ("--grammar-library", str(LIBRARY))

    def text(self, *args):
        result = run(*args, *self.where)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.removesuffix("\n")

    def error(self, *args):
        result = run(*args, *self.where)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        return result.stderr

    def test_every_kind(self):
        answer = json.loads(self.text("--json-schema", file("schema.json", json.dumps(SCHEMA))))
        self.assertEqual(list(answer), ["name", "age"])
        self.assertIn(answer["age"], range(1, 100))
        self.assertRegex(self.text("--regex", "[0-9]{3}-[a-f]+"), "^[0-9]{3}-[a-f]+$")
        self.assertIn(self.text("--choice", "a fool", "--choice", "very \"rich\""),
                      ["a fool", "very \"rich\""])
        gbnf = file("grammar.gbnf", 'root ::= "the " ("king" | "queen") [.!]')
        lark = file("grammar.lark", 'start: "the " ("king" | "queen") /[.!]/')
        for path in (gbnf, lark):
            self.assertRegex(self.text("--grammar", path), "^the (king|queen)[.!]$")

    def test_choices_of_n(self):
        path = file("schema.json", json.dumps(SCHEMA))
        result = json.loads(self.text("--json-schema", path, "-n", "3", "--json"))
        for choice in result["choices"]:
            self.assertEqual(set(json.loads(choice["text"])), {"name", "age"})
            self.assertEqual(choice["end"], "stop_token")

    def test_a_record_has_the_grammar_and_its_replay_follows_it(self):
        path = Path(FOLDER.name, f"{type(self).__name__}.jsonl")
        schema = file("schema.json", json.dumps(SCHEMA))
        lark = file("grammar.lark", 'start: "the " ("king" | "queen") /[.!]/')
        for flags in (("--json-schema", schema), ("--json-schema", schema, "--thinking-budget", "4"),
                      ("--regex", "[0-9]{3}-[a-f]+"), ("--choice", "a fool", "--choice", "rich"),
                      ("--grammar", lark), ("--json-object", "--max-tokens", "20"),
                      ("--thinking-budget", "4", "--max-tokens", "9")):
            self.text(*flags, "--record", str(path))
        requests = [json.loads(line)["request"] for line in path.read_text().splitlines()]
        self.assertEqual([r.get("grammar", {}).get("kind") for r in requests],
                         ["json_schema", "json_schema", "regex", "grammar", "lark", "json_object", None])
        self.assertEqual(json.loads(requests[0]["grammar"]["text"]), SCHEMA)
        self.assertEqual([r.get("thinking", {}).get("tokens") for r in requests],
                         [None, 4, None, None, None, None, 4])
        for where in {self.where, ("--grammar-library", str(LIBRARY))}:
            replay = subprocess.run([SLUICE, "replay", str(path), "--check", *where], env=ENVIRONMENT,
                                    timeout=300, capture_output=True, encoding="utf-8")
            self.assertEqual(replay.returncode, 0, replay.stderr)
            self.assertIn("7 checked", replay.stderr)

    def test_errors_name_the_flag_and_the_place(self):
        bad = {**SCHEMA, "properties": {"name": {"type": "string", "foo": 1}}}
        said = self.error("--json-schema", file("bad.json", json.dumps(bad)))
        self.assertRegex(said, r"^sluice: --json-schema .*/properties/name/foo")
        self.assertRegex(self.error("--regex", "a(b"), "^sluice: --regex ")
        self.assertRegex(self.error("--grammar", file("bad.gbnf", "root ::= nothing")),
                         "^sluice: --grammar .*nothing")
        self.assertRegex(self.error("--grammar", file("bad.lark", "start: nothing")),
                         "^sluice: --grammar .*nothing")


class ThroughAnEngine(Outputs):
    """The same through an engine in another process."""

    @classmethod
    def setUpClass(cls):
        cls.engine = subprocess.Popen(
            [SLUICE, "engine", "--listen", "tcp://127.0.0.1:*", "--quiet",
             "--grammar-library", str(LIBRARY)], env=ENVIRONMENT, stdout=subprocess.PIPE)
        line = cls.engine.stdout.readline().decode()
        cls.where = ("--engine", re.search(r"tcp://\S+", line)[0])

    @classmethod
    def tearDownClass(cls):
        cls.engine.kill()
        cls.engine.communicate()

    def test_an_engine_without_the_library(self):
        mock = subprocess.Popen([SLUICE, "mock-engine", "--listen", "tcp://127.0.0.1:*", "--quiet"],
                                env=ENVIRONMENT, stdout=subprocess.PIPE)
        self.addCleanup(mock.communicate)
        self.addCleanup(mock.kill)
        endpoint = mock.stdout.readline().decode().split()[-1]
        result = run("--regex", "a", "--engine", endpoint)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("takes no grammars: start it with --grammar-library", result.stderr)


if __name__ == "__main__":
    unittest.main()
