#!/usr/bin/env python3
"""sluice engine, mock-engine, replay and generate --engine, run as a user runs them, on a model of
random weights.

Usage: engine_test.py SLUICE ROOT.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import tiny_model

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT))
TOKENIZER = MODEL + "/tokenizer.json"
OTHER_TOKENIZER = str(ROOT / "tests/fixtures/tokenizers/gpt2.json")


def run(*args, text="", timeout=180):
    return subprocess.run([SLUICE, *args], env=ENVIRONMENT, input=text.encode(), capture_output=True,
                          timeout=timeout)


def generate(*args):
    return run("generate", *args, "--model", MODEL)


def as_json(*args):
    result = generate(*args, "--json")
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


def choices(*args):
    """What the choices of a generation came to, but for what only the process of a model knows."""
    return [{k: c.get(k) for k in ("text", "token_ids", "end", "stop", "stop_token")}
            for c in as_json(*args)["choices"]]


class Engine:
    """A process that listens, from `with` to its end."""

    def __init__(self, *args, command="engine", listen="tcp://127.0.0.1:*", tokenizer=TOKENIZER):
        model = ("--model", MODEL) if command == "engine" else ("--tokenizer", tokenizer)
        self.process = subprocess.Popen([SLUICE, command, "--listen", listen, *model, *args],
                                        env=ENVIRONMENT, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def __enter__(self):
        line = self.process.stdout.readline().decode()
        if not line:
            raise AssertionError(self.process.communicate()[1].decode())
        assert line.startswith("listening on ") and line.endswith("\n"), line
        self.endpoint = line.split()[-1]
        self.flags = ("--engine", self.endpoint)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        """Its exit code, and what it wrote on standard output and standard error."""
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=180)
        return self.process.returncode, out.decode(), errors.decode()


def mock(*args, **options):
    return Engine(*args, command="mock-engine", **options)


def start_generate(*args):
    return subprocess.Popen([SLUICE, "generate", "It was", "--model", MODEL, "--quiet", *args],
                            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class ThroughAnEngine(unittest.TestCase):
    def test_the_same_seed_gives_the_same_text_as_without(self):
        whole = as_json("It was", "--max-tokens", "60", "--seed", "2")["choices"][0]["text"]
        requests = [
            ("It was", "--max-tokens", "24", "--seed", "5", "--top-k", "30", "-n", "3"),
            ("It was", "--max-tokens", "60", "--seed", "2", "--stop", whole[10:12]),
            ("It was", "--max-tokens", "60", "--seed", "2", "--stop", whole[10:12], "--include-stop"),
            ("It was", "--max-tokens", "500", "--seed", "6"),  # to the end of the context
            ("It was", "--max-tokens", "24", "--seed", "7", "--repetition-penalty", "1.3",
             "--min-tokens", "9", "--bad-words", "5:6,7", "--logit-bias", "17:2.5"),
            ("It was", "--max-tokens", "24", "--seed", "7", "--stop-token-ids",
             ",".join(str(i) for i in range(0, 427, 12)))]
        expected = [choices(*request) for request in requests]
        for steps_in_flight in "01":
            with Engine("--steps-in-flight", steps_in_flight, "--step-tokens", "3",
                        "--max-requests", "2") as engine:
                for request, answer in zip(requests, expected):
                    for stop_at in ("engine", "frontend"):
                        self.assertEqual(
                            choices(*request, *engine.flags, "--stop-at", stop_at), answer,
                            (request, steps_in_flight, stop_at))

    def test_text_comes_to_standard_output_and_the_seed_to_standard_error(self):
        flags = ("It was", "--max-tokens", "24", "--seed", "5")
        with Engine() as engine:
            result = generate(*flags, *engine.flags)
            self.assertEqual((result.returncode, result.stdout), (0, generate(*flags).stdout))
            for words in ("ended by --max-tokens 24", "24 tokens in", engine.endpoint, "seed 5"):
                self.assertIn(words, result.stderr.decode())
            quiet = generate(*flags, *engine.flags, "--quiet", "--echo")
            self.assertEqual(quiet.stderr, b"")
            self.assertEqual(quiet.stdout, generate(*flags, "--echo").stdout)
            several = ("It was", "--max-tokens", "6", "--seed", "2", "-n", "3")
            self.assertEqual(generate(*several, *engine.flags).stdout, generate(*several).stdout)
            chosen = generate("It was", "--max-tokens", "12", *engine.flags)
            seed = re.search(r"seed (\d+)", chosen.stderr.decode())[1]
            self.assertEqual(generate("It was", "--max-tokens", "12", "--seed", seed).stdout,
                             chosen.stdout)

    def test_log_probabilities_are_those_of_a_model_here(self):
        flags = ("It was", "--max-tokens", "5", "--seed", "1", "--logprobs", "2")
        names = ("id", "logprob", "rank", "top_logprobs")
        expected = as_json(*flags)["choices"][0]["tokens"]
        with Engine() as engine:
            tokens = as_json(*flags, *engine.flags)["choices"][0]["tokens"]
            self.assertEqual(tokens, [{name: token[name] for name in names} for token in expected])
            refused = generate("It was", "--logprobs", "21", *engine.flags)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("logprobs = 21 is not allowed: [0, 20]", refused.stderr.decode())

    def test_log_probabilities_of_the_prompt_are_those_of_a_model_here(self):
        with Engine() as engine:
            for rest in (("--max-tokens", "0"), ("--max-tokens", "3", "-n", "2")):
                flags = ("It was once", "--seed", "1", "--prompt-logprobs", "2", *rest)
                here, there = as_json(*flags), as_json(*flags, *engine.flags)
                scored = here["prompt_logprobs"]
                self.assertEqual([token["id"] for token in scored], here["prompt_token_ids"][1:])
                for token in scored:
                    self.assertLess(token["logprob"], 0)
                    self.assertEqual(len(token["top_logprobs"]), 2)
                self.assertEqual(there["prompt_logprobs"], scored)
                self.assertEqual([choice["text"] for choice in there["choices"]],
                                 [choice["text"] for choice in here["choices"]])
                self.assertEqual([choice["end"] for choice in there["choices"]],
                                 ["length"] * len(there["choices"]))
            refused = generate("It was", "--prompt-logprobs", "21", *engine.flags)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("--prompt-logprobs = 21 is not allowed: [0, 20]", refused.stderr.decode())

    def test_many_at_once_do_not_notice_each_other(self):
        def flags(i):
            return ("--max-tokens", "30", "--seed", str(i))
        expected = [generate("It was", *flags(i), "--quiet").stdout for i in range(6)]
        with Engine("--max-requests", "3", "--cache-tokens", "96") as engine:
            processes = [start_generate(*flags(i), *engine.flags) for i in range(6)]
            for process, text in zip(processes, expected):
                self.assertEqual(process.communicate(timeout=180), (text, b""))

    def test_an_interrupt_aborts_the_request(self):
        with mock("--echo", "--rate", "200", "--batch", "1", "--json") as engine:
            with start_generate("--max-tokens", "100000", *engine.flags) as process:
                begin = process.stdout.read(20)
                process.send_signal(signal.SIGINT)
                rest, _ = process.communicate(timeout=180)
            self.assertEqual(process.returncode, 130)
            (begin + rest).decode("utf-8")  # no character is cut
            generate("It was", "--max-tokens", "1", *engine.flags)  # there is room for one
            counters = json.loads(engine.end()[1])["engine"]
        self.assertEqual([counters[name] for name in ("requests", "ended", "aborted", "running")],
                         [2, 2, 1, 0])

    def test_what_an_engine_decides_is_not_to_be_asked_for_here(self):
        for flag, value in (("--weights", "int8"), ("--threads", "2"), ("--head", "dense"),
                            ("--head-file", "a"), ("--backend", "ref"), ("--show-candidates", "3"), ("--json-lines", None)):
            result = generate("a", "--engine", "ipc://@nobody", flag, *([value] if value else []))
            self.assertEqual(result.returncode, 2, flag)
            self.assertIn(flag, result.stderr.decode())
        self.assertEqual(generate("a", "--stop-at", "engine").returncode, 2)


class Ends(unittest.TestCase):
    def test_a_signal_ends_it_with_what_it_has_done(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Engine() as engine:
                generate("It was", "--max-tokens", "24", "--seed", "5", *engine.flags)
                code, out, errors = engine.end(number)
            self.assertEqual((code, out), (0, ""))
            self.assertIn("1 request of 1 frontend: 0 aborted, 0 rejected", errors)
            self.assertIn("24 tokens in ", errors)
        with Engine("--json", "--quiet") as engine:
            generate("It was", "--max-tokens", "24", "--seed", "5", *engine.flags)
            code, out, errors = engine.end()
        report = json.loads(out)
        self.assertEqual((code, errors, report["endpoint"]), (0, "", engine.endpoint))
        self.assertEqual((report["engine"]["tokens"], report["link"]["tokens_out"]), (24, 24))

    def test_it_ends_what_is_on_its_way(self):
        with mock("--echo", "--rate", "200") as engine:
            with start_generate("--max-tokens", "100000", *engine.flags) as process:
                process.stdout.read(20)
                self.assertEqual(engine.end()[0], 0)
                _, errors = process.communicate(timeout=180)
        self.assertEqual(process.returncode, 1)
        self.assertIn("the engine was lost", errors.decode())

    def test_a_second_signal_ends_it_at_once(self):
        with mock("--echo", "--stall-at", "2:20000") as engine:
            with start_generate("--max-tokens", "100000", *engine.flags) as process:
                process.stdout.read(1)  # of step 1
                run("--version")  # takes longer than the way to the next step
                engine.process.send_signal(signal.SIGTERM)
                run("--version")  # and than that of a signal
                code = engine.end(signal.SIGINT)[0]
                self.assertEqual(code, -signal.SIGINT)
                process.communicate(timeout=180)
        self.assertEqual(process.returncode, 1)

    def test_a_killed_engine_is_an_error_at_once(self):
        with mock("--echo", "--rate", "200") as engine:
            with start_generate("--max-tokens", "100000", *engine.flags) as process:
                process.stdout.read(20)
                engine.process.kill()
                _, errors = process.communicate(timeout=180)
        self.assertEqual(process.returncode, 1)
        # And not: it has said nothing for so long.
        self.assertRegex(errors.decode(), "the engine was lost: .*: the connection was lost\n$")

    def test_an_endpoint_in_use_is_named(self):
        with Engine() as engine:
            result = run("engine", "--model", MODEL, "--listen", engine.endpoint)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(engine.endpoint, result.stderr.decode())

    def test_an_engine_of_another_tokenizer_is_refused(self):
        with mock("--echo", tokenizer=OTHER_TOKENIZER) as engine:
            result = generate("It was", *engine.flags)
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn("tokenizer", result.stderr.decode())

    def test_an_endpoint_that_others_reach_is_warned_of(self):
        with mock("--echo", "--quiet", listen="tcp://0.0.0.0:*") as engine:
            code, _, errors = engine.end()
        self.assertEqual(code, 0)
        self.assertIn("other machines may reach tcp://0.0.0.0:*", errors)

    def test_what_is_wrong_is_named(self):
        endpoint = "ipc://@nobody"
        for args, words in [
                (("engine", "--listen", "80"), '--listen = "80" is not allowed: ipc://PATH'),
                (("engine", "--listen", "tcp://127.0.0.1:x"), "tcp://HOST:PORT"),
                (("generate", "a", "--engine", "127.0.0.1:80"), "tcp://HOST:PORT"),
                (("replay", "-", "--engine", "ipc://"), "tcp://HOST:PORT"),
                (("engine", "--max-requests", "0"), "--max-requests = 0 is not allowed: a "),
                (("engine", "--step-tokens", "-1"), "--step-tokens = -1 is not allowed: a "),
                (("engine", "--cache-tokens", "-1"), "--cache-tokens = -1 is not allowed: a "),
                (("engine", "--steps-in-flight", "2"),
                 "--steps-in-flight = 2 is not allowed: a "),
                (("engine", "--max-logprobs", "-2"), "--max-logprobs = -2 is not allowed: a "),
                (("engine", "--head", "big"), 'head = "big" is not allowed'),
                (("engine", "--head-file", "a"), 'head-file = "a" is not allowed: none with --head auto'),
                (("engine", "--model", "/nowhere"), "/nowhere"),
                (("mock-engine", "--tokens", "1,x"), "--tokens"),
                (("mock-engine", "--tokens", "1,427", "--tokenizer", TOKENIZER),
                 "--tokens = 427 is not allowed"),
                (("mock-engine", "--tokens", "1", "--echo"), "--tokens excludes --echo"),
                (("mock-engine", "--script", "/nowhere"), "/nowhere"),
                (("mock-engine", "--rate", "-1"), "--rate = -1 is not allowed: a "),
                (("mock-engine", "--rate", "1", "--step-us", "1"), "--rate excludes --step-us"),
                (("mock-engine", "--burst", "0"), "--burst = 0 is not allowed: a "),
                (("mock-engine", "--stall-at", "7"), '--stall-at = "7" is not allowed: STEP:MS'),
                (("mock-engine", "--kill-at", "-1"), "--kill-at = -1 is not allowed: a "),
                (("mock-engine", "--drop", "-1"), "--drop = -1 is not allowed: a "),
                (("replay",), "FILE"),
                (("replay", "/nowhere"), "/nowhere"),
                (("replay", "-", "--concurrency", "-1"), "--concurrency = -1 is not allowed: a "),
                (("replay", "-", "--engine", endpoint, "--head", "dense"), "--head"),
                (("replay", "-", "--engine", endpoint, "--head-file", "a"), "--head-file"),
                (("generate", "a", "--engine", endpoint, "--stop-at", "client"),
                 '--stop-at = "client" is not allowed: engine or frontend')]:
            result = run(*args)
            self.assertEqual((args, result.returncode), (args, 2), result.stderr.decode())
            self.assertIn(words, result.stderr.decode())
            self.assertEqual(result.stdout, b"")


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "requests.jsonl"

    def record(self, *args):
        result = generate("It was", "--max-tokens", "20", "--record", str(self.file), *args)
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def replay(self, *args, **options):
        return run("replay", str(self.file), "--model", MODEL, "--check", *args, **options)

    def test_records_are_the_same_with_and_without_an_engine(self):
        flags = ("--seed", "5", "-n", "2", "--stop", "no such", "--top-k", "9", "--logprobs", "1")
        self.record(*flags)
        without = self.file.read_text()
        self.file.unlink()
        with Engine() as engine:
            self.record(*flags, *engine.flags)
        self.assertEqual(self.file.read_text(), without)
        request = json.loads(without.split("\n")[0])["request"]
        self.assertEqual((request["parameters"]["seed"], request["max_tokens"], request["stops"]),
                         (5, 20, ["no such"]))

    def test_what_was_recorded_is_given_again(self):
        def tokens(count):
            return f"{count} token" + ("" if count == 1 else "s")
        for flags in (("--seed", "5", "-n", "3"), ("--stop", "e"), ("--temperature", "0"),
                      ("--stop-token-ids", ",".join(str(i) for i in range(0, 427, 12)))):
            self.record(*flags)  # each behind the others
        records = [json.loads(line) for line in self.file.read_text().strip().split("\n")]
        self.assertEqual(len(records), 6)
        ways = [(), ("--steps-in-flight", "1", "--max-requests", "2"), ("--concurrency", "1"),
                ("--stop-at", "frontend")]
        with Engine() as engine:
            for way in [*ways, engine.flags, (*engine.flags, "--concurrency", "2")]:
                result = self.replay(*way)
                self.assertEqual(result.returncode, 0, (way, result.stderr.decode()))
                self.assertIn("6 checked", result.stderr.decode())
                expected = "".join(
                    f"--- {i + 1} of 6, {r['result']['end']} after "
                    f"{tokens(r['result']['output_tokens'])} ---\n{r['result']['text']}\n"
                    for i, r in enumerate(records))
                self.assertEqual(re.sub(r"\n+", "\n", result.stdout.decode()),
                                 re.sub(r"\n+", "\n", expected))
            answer = json.loads(self.replay("--json", *engine.flags).stdout)
        self.assertEqual([r["token_ids"] for r in answer["requests"]],
                         [r["result"]["token_ids"] for r in records])
        self.assertEqual({r["difference"] for r in answer["requests"]}, {None})

    def test_the_first_difference_is_named(self):
        self.record("--seed", "5", "-n", "2")
        lines = self.file.read_text().strip().split("\n")
        for field, change, words in [
                ("text", lambda text: text[:7] + "#" + text[8:], "request 2: text differs at byte"),
                ("text", lambda text: text + "more", "request 2: text differs at byte"),
                ("token_ids", lambda ids: [*ids[:3], ids[3] + 1, *ids[4:]], "token 3 differs"),
                ("token_ids", lambda ids: ids[:-1], "token 19 differs: recorded none, now"),
                ("end", lambda _: "context", "end differs: recorded context, now length"),
                ("prompt_tokens", lambda n: n + 1, "prompt_tokens differ"),
                ("output_tokens", lambda n: n + 1, "output_tokens differ: recorded 21, now 20")]:
            record = json.loads(lines[1])
            record["result"][field] = change(record["result"][field])
            self.file.write_text(lines[0] + "\n" + json.dumps(record) + "\n")
            result = self.replay()
            self.assertEqual(result.returncode, 1, field)
            self.assertIn(words, result.stderr.decode())
            self.assertIn("--- 2 of 2", result.stdout.decode())  # the texts come all the same

    def test_a_request_waits_for_a_slot_whose_request_has_ended_here_alone(self):
        # One more than there are slots; each of the others ends at its first token, by a stop that
        # the frontend finds, and the engine learns it a step later.
        record = {"prompt": [1], "max_tokens": 1000, "stop_at": "frontend", "parameters":
                  {"seed": 1}}
        with mock("--tokens", "5", "--rate", "5", "--batch", "4096") as engine:
            stop = self.texts(engine, [dict(record, max_tokens=1)])[0]
            self.assertTrue(stop)
            texts = self.texts(engine, 4097 * [dict(record, stops=[stop])])
        self.assertEqual(texts, 4097 * [""])

    def texts(self, engine, requests):
        self.file.write_text("".join(json.dumps({"request": r}) + "\n" for r in requests))
        result = run("replay", str(self.file), "--model", MODEL, "--stop-at", "frontend", "--json",
                     *engine.flags)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return [r["text"] for r in json.loads(result.stdout)["requests"]]

    def test_what_was_interrupted_is_recorded_without_a_result(self):
        with mock("--echo", "--rate", "200") as engine:
            with start_generate("--max-tokens", "100000", "--record", str(self.file),
                                *engine.flags) as process:
                process.stdout.read(20)
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=180)
        self.assertEqual(list(json.loads(self.file.read_text())), ["request"])

    def test_a_line_that_cannot_be_read_is_named(self):
        self.record("--seed", "5")
        line = self.file.read_text()
        for bad, words in [("{\n", "line 2: malformed"),
                           (line.replace('"max_tokens":20', '"max_tokens":-1'),
                            "line 2: request.max_tokens = -1 is not allowed"),
                           (line.replace('"top_p":1', '"top_p":2'),
                            "line 2: request.parameters.top_p = 2 is not allowed"),
                           (line.replace('"choice"', '"choices"'),
                            "line 2: request.choices = an unknown field")]:
            self.file.write_text(line + bad)
            result = self.replay()
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(words, result.stderr.decode())

    def test_a_request_that_an_engine_cannot_take_is_named(self):
        self.record("--seed", "5")
        line = self.file.read_text()
        self.file.write_text(line + line.replace('"prompt":[', '"prompt":[426,427,'))
        result = self.replay()
        self.assertEqual(result.returncode, 2)
        self.assertIn("request 2: prompt = 427", result.stderr.decode())


class Bench(unittest.TestCase):
    @unittest.skipIf(run("inspect", "model").returncode != 0, "this build has no built-in model")
    def test_every_figure_has_its_unit_and_its_target(self):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
            result = run("bench", "engine", "--quick", "--json", file.name)
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            rows = json.load(file)["rows"]
        for task in ("step", "step, with a stop", "behind a stop, seen by the frontend",
                     "until aborted slots are free", "slower beside a stopped frontend"):
            found = [row for row in rows if row["task"] == task]
            self.assertTrue(found and all("target" in row for row in found), task)
            self.assertIn(task, result.stdout.decode())
        for row in rows:
            self.assertEqual(row["bench"], "engine")
            units = {"ns", "tokens", "steps", "share", "tokens_per_second"}
            self.assertEqual(len(units & set(row)), 1, row)


class MockEngine(unittest.TestCase):
    TEXT = "Hello there, this is a script. It has two sentences."

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = Path(folder.name) / "script.txt"
        self.script.write_text(self.TEXT)
        self.count = len(json.loads(run("tokenize", TOKENIZER, "--json", "--no-special-tokens",
                                        text=self.TEXT).stdout)["ids"])

    def generate_from(self, flags, *args):
        with mock(*flags) as engine:
            return generate("It was", "--quiet", *args, *engine.flags)

    def test_scripts_tokens_and_echo(self):
        length = ("--max-tokens", str(self.count))
        script = ("--script", str(self.script))
        self.assertEqual(self.generate_from(script, *length).stdout.decode(), self.TEXT + "\n")
        burst = self.generate_from((*script, "--burst", "5", "--steps-in-flight", "1"), *length)
        self.assertEqual(burst.stdout.decode(), self.TEXT + "\n")
        answer = self.generate_from(("--tokens", "5,6,7"), "--max-tokens", "5", "--json")
        self.assertEqual(json.loads(answer.stdout)["choices"][0]["token_ids"], [5, 6, 7, 5, 6])
        answer = json.loads(self.generate_from(("--echo",), "--max-tokens", "7", "--json").stdout)
        prompt = answer["prompt_token_ids"]
        self.assertEqual(answer["choices"][0]["token_ids"], (prompt * 7)[:7])

    def test_a_stall_delays_and_loses_nothing(self):
        begin = time.monotonic()
        result = self.generate_from(("--script", str(self.script), "--stall-at", "3:300"),
                                    "--max-tokens", str(self.count))
        self.assertEqual(result.stdout.decode(), self.TEXT + "\n")
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)

    def test_frames_that_come_twice_change_nothing(self):
        result = self.generate_from(("--script", str(self.script), "--rate", "500", "--duplicate", "1"),
                                    "--max-tokens", str(self.count))
        self.assertEqual((result.returncode, result.stdout.decode()), (0, self.TEXT + "\n"))

    def test_no_fault_leaves_a_wrong_text(self):
        for fault, words in [(("--kill-at", "6"), ""), (("--fail-at", "6"), "failed in step 6"),
                             (("--late", "4"), "frames are missing"),
                             (("--drop", "4"), "frames are missing"),
                             (("--truncate", "4"), "cannot be read"),
                             (("--wrong-epoch", "4"), "")]:
            for seed in "012":
                flags = ("--script", str(self.script), "--rate", "500", *fault, "--seed", seed)
                result = self.generate_from(flags, "--max-tokens", "1000")
                self.assertEqual(result.returncode, 1, flags)
                self.assertIn("the engine was lost", result.stderr.decode())
                self.assertIn(words, result.stderr.decode())
                self.assertTrue((self.TEXT * 100).startswith(result.stdout.decode().rstrip("\n")),
                                result.stdout)

    def test_the_same_seed_hurts_the_same_frames(self):
        flags = ("--script", str(self.script), "--rate", "500", "--drop", "9", "--seed", "7")
        first = self.generate_from(flags, "--max-tokens", "1000").stdout
        self.assertEqual(first, self.generate_from(flags, "--max-tokens", "1000").stdout)


if __name__ == "__main__":
    unittest.main()
