#!/usr/bin/env python3
"""`sluice serve` in front of an engine that is vLLM's own handshake, decoder and encoder.

Usage: engine_core_test.py SLUICE ROOT. Exit code 77: skipped, where vLLM's wheel or what its files
import is missing (scripts/setup.sh plugins; SLUICE_PEER_WHEELS names another folder). The model is
a stand-in: it says the prompt again and again.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("cli", "python", "fixtures")]
os.environ.setdefault("SLUICE_PEER_WHEELS", str(ROOT / "build/plugin-wheels"))
try:
    import make_vllm_messages
    import msgspec
    import numpy as np
    import vllm_messages
    import zmq
    SOURCES = vllm_messages.sources()
except ImportError as missing:
    print(f"skipped: {missing}; scripts/setup.sh plugins installs it")
    sys.exit(77)
if SOURCES is None:
    print(f"skipped: no wheel of vLLM {vllm_messages.VERSION} in SLUICE_PEER_WHEELS")
    sys.exit(77)
import served  # noqa: E402
import tiny_model  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT))
IDENTITY = (0).to_bytes(2, "little")


class Engine(threading.Thread):
    """One life of a process that is EngineCoreProc to its frontend."""

    def __init__(self, vllm, port, rate=0.0):
        super().__init__(daemon=True)
        self.vllm, self.rate, self.requests, self.aborted = vllm, rate, [], []
        self.is_over = threading.Event()
        self.context = zmq.Context()
        self.handshake = self.socket(zmq.DEALER, f"tcp://127.0.0.1:{port}")
        self.start()

    def socket(self, kind, address):
        made = self.context.socket(kind)
        made.linger = 0
        if kind == zmq.DEALER:
            made.identity = IDENTITY
        made.connect(address)
        return made

    def kill(self):
        self.is_over.set()
        self.join()
        self.context.destroy(linger=0)  # and every socket of it

    def run(self):
        addresses = self.vllm.EngineCoreProc.startup_handshake(self.handshake, False, True)
        requests = self.socket(zmq.DEALER, addresses.inputs[0])
        outputs = self.socket(zmq.PUSH, addresses.outputs[0])
        facts = dict(make_vllm_messages.handshake(self.vllm))["handshake.facts"]
        requests.send(msgspec.msgpack.encode(facts))
        self.handshake.send(msgspec.msgpack.encode(
            {"status": "READY", "local": False, "headless": True}))
        running = {}
        encoder = self.vllm.MsgpackEncoder()
        while not self.is_over.is_set():
            while requests.poll(0 if running else 10):
                self.take(requests.recv_multipart(), running, outputs, encoder)
            step = [self.token(request, count) for request, count in running.values()]
            for request_id in list(running):
                running[request_id][1] += 1
            for output in step:
                if output.finish_reason is not None:
                    del running[output.request_id]
            if step:
                outputs.send_multipart(encoder.encode(self.vllm.EngineCoreOutputs(outputs=step)))
                time.sleep(self.rate)

    def take(self, frames, running, outputs, encoder):
        kind, vllm = self.vllm.EngineCoreRequestType(frames[0]), self.vllm
        if kind == kind.ADD:
            request = vllm.MsgpackDecoder(vllm.EngineCoreRequest).decode(frames[1:])
            self.requests.append(request)
            running[request.request_id] = [request, 0]
        elif kind == kind.ABORT:
            for request_id in vllm.MsgpackDecoder().decode(frames[1:]):
                self.aborted.append(request_id)
                running.pop(request_id, None)
        else:
            client, call, method, arguments = vllm.MsgpackDecoder().decode(frames[1:])
            assert (client, method, arguments) == (0, "is_scheduler_paused", [])
            outputs.send_multipart(encoder.encode(vllm.EngineCoreOutputs(
                utility_output=vllm.UtilityOutput(call, result=vllm.UtilityResult(False)))))

    def token(self, request, count):
        params, prompt = request.sampling_params, request.prompt_token_ids
        token = prompt[count % len(prompt)]
        finish = self.vllm.FinishReason.LENGTH if count + 1 == params.max_tokens else None
        if token in params.stop_token_ids:
            finish = self.vllm.FinishReason.STOP
        return self.vllm.EngineCoreOutput(
            request.request_id, [token], finish_reason=finish,
            new_logprobs=self.lists([token], params.logprobs),
            new_prompt_logprobs_tensors=self.prompt(params, prompt) if count == 0 else None)

    def lists(self, tokens, width):
        if width is None:
            return None
        rows = np.array([[token, *range(width + 2)] for token in tokens], np.int32)
        values = np.tile(-np.arange(1, width + 4, dtype=np.float32), (len(tokens), 1))
        return self.vllm.LogprobsLists(rows, values, np.ones(len(tokens), np.int32))

    def prompt(self, params, prompt):
        if params.prompt_logprobs is None:
            return None
        arrays = self.lists(prompt[1:], params.prompt_logprobs)
        return self.vllm.LogprobsTensors(*map(vllm_messages.torch.from_numpy, arrays[:3]))


def free_port():
    with socket.socket() as its:
        its.bind(("127.0.0.1", 0))
        return its.getsockname()[1]


class WithVllm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.messages = vllm_messages.Messages(SOURCES)
        cls.vllm = cls.messages.__enter__()
        cls.addClassCleanup(cls.messages.__exit__)

    def test_the_fixtures_are_what_its_encoder_writes(self):
        committed = (ROOT / "tests/fixtures/vllm_messages.txt").read_text().splitlines()
        written = [" ".join((name, *(frame.hex() for frame in frames)))
                   for name, frames in make_vllm_messages.messages(self.vllm)]
        self.assertEqual(written, committed[1:])


class Serve(WithVllm):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.port = free_port()
        cls.engine = Engine(cls.vllm, cls.port)
        cls.server = served.Server(SLUICE, "--model", MODEL, "--engine",
                                   f"vllm+tcp://127.0.0.1:{cls.port}")
        cls.server.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.engine.kill()
        cls.server.__exit__()

    def ask(self, status=200, **fields):
        got, _, body = self.server.post("/v1/completions", {"prompt": "It was", **fields})
        self.assertEqual(got, status, body)
        return body

    def test_its_decoder_reads_what_was_asked_for(self):
        answer = self.ask(max_tokens=4, temperature=0.5, top_k=7, top_p=0.25, min_p=0.125,
                          presence_penalty=1.5, frequency_penalty=-0.5, repetition_penalty=1.25,
                          seed=2**64 - 1, min_tokens=2, logit_bias={"5": -200},
                          allowed_token_ids=[5, 6], stop_token_ids=[400, 401],
                          bad_words_token_ids=[[7], [8, 9]])
        request = self.engine.requests[-1]
        params = request.sampling_params
        ids = self.server.post("/tokenize", {"prompt": "It was"})[2]
        self.assertEqual(request.prompt_token_ids, ids["tokens"])
        self.assertEqual(
            (params.max_tokens, params.temperature, params.top_k, params.top_p, params.min_p),
            (4, 0.5, 7, 0.25, 0.125))
        self.assertEqual(
            (params.presence_penalty, params.frequency_penalty, params.repetition_penalty),
            (1.5, -0.5, 1.25))
        self.assertEqual((params.seed, params.min_tokens), (2**63 - 1, 2))
        self.assertEqual(params.logit_bias, {5: -100.0})
        self.assertEqual(params.allowed_token_ids, [5, 6])
        self.assertEqual(params.bad_words_token_ids, [[7], [8, 9]])
        self.assertEqual(params.all_stop_token_ids, {400, 401})
        self.assertIsNone(params.eos_token_id)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 4)

    def test_its_decoder_reads_grammars(self):
        for field, sent, name, read in (
                ("guided_json", {"type": "object"}, "json", '{"type":"object"}'),
                ("response_format", {"type": "json_object"}, "json_object", True),
                ("guided_regex", "a+", "regex", "a+"),
                ("structured_outputs", {"grammar": "start: 'a'"}, "grammar", "start: 'a'"),
                ("guided_choice", ["a", "b"], "grammar", 'root ::= "a" | "b"')):
            answer = self.ask(max_tokens=2, min_tokens=1, stop_token_ids=[400], **{field: sent})
            params = self.engine.requests[-1].sampling_params
            structured = params.structured_outputs
            self.assertIsInstance(structured, self.vllm.StructuredOutputsParams)
            self.assertEqual({key: value for key, value in vars(structured).items() if value},
                             {name: read, "_backend": "xgrammar"})
            self.assertEqual(params.min_tokens, 0)
            self.assertEqual(answer["usage"]["completion_tokens"], 2)
        error = self.ask(status=400, guided_json={"not": {}}, stop_token_ids=[400])["error"]
        self.assertEqual(error["param"], "guided_json")

    def test_its_encoder_is_read_in_streams_and_whole(self):
        whole = self.ask(max_tokens=12)["choices"][0]["text"]
        self.assertTrue(whole.startswith("It was"), whole)
        events = self.server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 12})
        self.assertEqual(served.text_of(events), whole)

    def test_logprobs_are_those_that_it_sent(self):
        answer = self.ask(max_tokens=3, logprobs=2, prompt_logprobs=1)
        choice = answer["choices"][0]
        self.assertEqual(choice["logprobs"]["token_logprobs"], [-1.0, -1.0, -1.0])
        self.assertEqual(self.engine.requests[-1].sampling_params.logprobs, 2)
        self.assertEqual(self.engine.requests[-1].sampling_params.prompt_logprobs, 1)
        self.assertTrue(self.engine.requests[-1].sampling_params.skip_reading_prefix_cache)
        self.assertEqual(choice["prompt_logprobs"][0], None)
        self.assertEqual(len(choice["prompt_logprobs"]),
                         len(self.engine.requests[-1].prompt_token_ids))

    def test_choices_have_seeds_one_behind_the_other(self):
        self.ask(max_tokens=1, n=3, seed=40)
        self.assertEqual(sorted(request.sampling_params.seed
                                for request in self.engine.requests[-3:]), [40, 41, 42])

    def test_stops_are_found_here_and_end_the_request_there(self):
        answer = self.ask(max_tokens=90, stop=[" was"])
        choice = answer["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), ("It", "stop"))
        end = time.monotonic() + served.PATIENCE
        while self.engine.requests[-1].request_id not in self.engine.aborted:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def test_what_it_has_not_is_refused_by_name(self):
        for name, value in (("xtc_probability", 0.5), ("typical_p", 0.5), ("top_n_sigma", 1.0),
                            ("dry_multiplier", 0.8), ("draw_method", "cdf"),
                            ("logprobs_mode", "raw_logits")):
            before = len(self.engine.requests)
            error = self.ask(status=400, max_tokens=1, **{name: value})["error"]
            self.assertEqual(error["param"], name)
            self.assertIn("vLLM", error["message"])
            self.assertEqual(len(self.engine.requests), before)

    def test_the_model_has_the_name_of_its_folder(self):
        models = json.loads(self.server.get("/v1/models")[2])["data"]
        self.assertEqual([(its["id"], its["max_model_len"]) for its in models], [("tiny", 4096)])


class Ends(WithVllm):
    def test_an_engine_that_is_killed_is_an_error_and_its_next_life_is_taken(self):
        port = free_port()
        engine = Engine(self.vllm, port, rate=0.01)
        with served.Server(SLUICE, "--model", MODEL, "--engine",
                           f"vllm+tcp://127.0.0.1:{port}") as server:
            events = server.stream("/v1/completions", {"prompt": "It was", "max_tokens": 4000})
            next(events)
            engine.kill()
            rest = list(events)
            self.assertIn("error", json.dumps(rest[-2:]))
            server.wait_for_health(503)
            engine = Engine(self.vllm, port)
            server.wait_for_health(200)
            status, _, _ = server.post("/v1/completions", {"prompt": "It was", "max_tokens": 2})
            self.assertEqual(status, 200)
        engine.kill()


if __name__ == "__main__":
    unittest.main()
