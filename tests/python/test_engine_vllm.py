"""A client in front of an engine of vLLM: what that one does not tell comes from the model's folder."""

import socket
import threading

import pytest
from engines import MODEL, NEEDS_ENGINE

import sluice

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")

pytestmark = NEEDS_ENGINE

PATIENCE = 60_000  # milliseconds, for what comes at once on a quiet machine
VOCAB = 8192  # of MODEL
IDENTITY = b"\0\0"


class Engine(threading.Thread):
    """Says hello, answers pings, and ends each request with its first end token."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.requests = port, []
        self.start()

    def run(self):
        with zmq.Context() as context:
            context.linger = 0
            handshake = self.connect(context, zmq.DEALER, f"tcp://127.0.0.1:{self.port}")
            self.send(handshake, {"status": "HELLO", "local": False, "headless": True})
            addresses = msgspec.msgpack.decode(handshake.recv())["addresses"]
            requests = self.connect(context, zmq.DEALER, addresses["inputs"][0])
            outputs = self.connect(context, zmq.PUSH, addresses["outputs"][0])
            self.send(requests, {"vllm_version": "0.33.0", "max_model_len": 64, "max_num_seqs": 8,
                                 "data_parallel_size": 1})
            while not self.requests:
                assert requests.poll(PATIENCE)
                kind, frame = requests.recv_multipart()
                message = msgspec.msgpack.decode(frame)
                if kind == b"\x03":
                    self.send(outputs, [0, [], None, 1.0, [message[1], None, None]])
                elif kind == b"\x00":
                    params = message[3]
                    last = (params["stop_token_ids"] or [5])[0]
                    finish = 0 if params["stop_token_ids"] else 1
                    self.send(outputs, [0, [[message[0], [VOCAB + 1, last], None, None, None,
                                             finish]]])
                    self.requests.append(params)

    def connect(self, context, kind, address):
        its = context.socket(kind)
        its.linger = PATIENCE
        if kind == zmq.DEALER:
            its.identity = IDENTITY
        its.connect(address)
        return its

    @staticmethod
    def send(its, message):
        its.send(msgspec.msgpack.encode(message))


@pytest.fixture
def engine():
    with socket.socket() as its:
        its.bind(("127.0.0.1", 0))
        port = its.getsockname()[1]
    return Engine(port)


def connect(engine, tokenizer, **keywords):
    return sluice.EngineClient.connect(f"vllm+tcp://127.0.0.1:{engine.port}", tokenizer,
                                       start_timeout=PATIENCE / 1000, **keywords)


def test_the_folder_of_a_model_has_its_end_tokens_and_its_vocabulary(engine):
    with connect(engine, MODEL) as client:
        assert client.info["end_tokens"] == [0]
        assert client.info["vocab"] == VOCAB
        with pytest.raises(sluice.UnavailableError, match="vocabulary"):
            client.generate("It was", max_tokens=4)
    assert engine.requests[0]["stop_token_ids"] == [0]


def test_both_may_be_said(engine):
    with connect(engine, MODEL, end_tokens=[7, 9], vocab=VOCAB + 2) as client:
        assert client.info["end_tokens"] == [7, 9]
        output = client.generate("It was", max_tokens=4)
        assert (output.finish, output.stop_token) == ("stop", 7)
    assert engine.requests[0]["stop_token_ids"] == [7, 9]


def test_without_a_folder_nothing_ends_a_text(engine):
    with connect(engine, sluice.Tokenizer.from_file(f"{MODEL}/tokenizer.json"),
                 vocab=VOCAB + 2) as client:
        assert client.info["end_tokens"] == []
        assert client.generate("It was", max_tokens=2).finish == "length"


def test_what_cannot_be_is_refused():
    for keywords, name in (({"vocab": -1}, "vocab"), ({"start_timeout": -1}, "start_timeout"),
                           ({"end_tokens": 1.5}, "end_tokens")):
        with pytest.raises((sluice.Error, sluice.ArgumentTypeError), match=name):
            sluice.EngineClient.connect("vllm+tcp://127.0.0.1:1", MODEL, **keywords)
