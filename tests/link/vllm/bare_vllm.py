#!/usr/bin/env python3
"""A stand-in for the Python that has vLLM, by the standard library alone: a version, and an engine.

    bare_vllm.py -c SCRIPT                          prints the version
    bare_vllm.py -m vllm.entrypoints.cli.main serve MODEL --headless ...   is an engine

The engine speaks ZMTP 3.0 and MessagePack by itself. It says the prompt again and again, a token of
each request a step. FAKE_VLLM has words that change that:
    version=V   the version that it has          fails       ends with 3 before it says hello
    step=S      seconds of a step                forks       has a child, which writes its id to
    stubborn    SIGTERM does not end it                      FAKE_VLLM_CHILD
    broken      as an interpreter that cannot run            floods      says much on standard error
    loud=N      N lines of its log for each step
"""

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time

MODE = dict(word.partition("=")[::2] for word in os.environ.get("FAKE_VLLM", "").split())
VERSION = MODE.get("version", "0.33.0")


# --- MessagePack

def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        raw = value.encode()
        return b"\xdb" + struct.pack(">I", len(raw)) + raw
    if isinstance(value, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    return (b"\xdf" + struct.pack(">I", len(value)) +
            b"".join(pack(key) + pack(item) for key, item in value.items()))


def unpack(data, at=0):
    """A value, and where it ends."""
    first = data[at]
    at += 1

    def number(form):
        return struct.unpack_from(">" + form, data, at)[0], at + struct.calcsize(form)

    def items(count, start):
        values = []
        for _ in range(count):
            value, start = unpack(data, start)
            values.append(value)
        return values, start

    def pairs(count, start):
        values, start = items(2 * count, start)
        return dict(zip(values[::2], values[1::2])), start

    def text(count, start, is_text=True):
        raw = bytes(data[start:start + count])
        return raw.decode() if is_text else raw, start + count

    if first < 0x80:
        return first, at
    if first < 0x90:
        return pairs(first & 15, at)
    if first < 0xa0:
        return items(first & 15, at)
    if first < 0xc0:
        return text(first & 31, at)
    if first >= 0xe0:
        return first - 256, at
    if first in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[first], at
    forms = {0xca: "f", 0xcb: "d", 0xcc: "B", 0xcd: "H", 0xce: "I", 0xcf: "Q", 0xd0: "b",
             0xd1: "h", 0xd2: "i", 0xd3: "q"}
    if first in forms:
        return number(forms[first])
    sized = {0xc4: ("B", text, False), 0xc5: ("H", text, False), 0xc6: ("I", text, False),
             0xd9: ("B", text), 0xda: ("H", text), 0xdb: ("I", text), 0xdc: ("H", items),
             0xdd: ("I", items), 0xde: ("H", pairs), 0xdf: ("I", pairs)}
    form, read, *more = sized[first]
    count, start = number(form)
    return read(count, start, *more)


# --- ZMTP

class Socket:
    """A DEALER or PUSH that is connected."""

    def __init__(self, kind, address, identity=None):
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        end = time.monotonic() + 60
        while True:
            try:
                self.tcp = socket.create_connection((host, int(port)), 10)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.tcp.settimeout(None)
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input, self.frames = b"", []
        self.tcp.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") +
                         bytes(32))
        self._take(64)
        properties = self._property(b"Socket-Type", kind.encode())
        if identity is not None:
            properties += self._property(b"Identity", identity)
        self._command(b"\x05READY" + properties)
        self._frame()  # the peer's READY

    @staticmethod
    def _property(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value

    def _command(self, body):
        self.tcp.sendall(b"\x04" + bytes([len(body)]) + body)

    def _take(self, size):
        while len(self.input) < size:
            more = self.tcp.recv(1 << 16)
            if not more:
                raise ConnectionError("the frontend has ended")
            self.input += more
        taken, self.input = self.input[:size], self.input[size:]
        return taken

    def _frame(self):
        flags = self._take(1)[0]
        size = struct.unpack(">Q", self._take(8))[0] if flags & 2 else self._take(1)[0]
        return flags, self._take(size)

    def send(self, *frames):
        out = b""
        for at, frame in enumerate(frames):
            more = 1 if at + 1 < len(frames) else 0
            out += bytes([more | 2]) + struct.pack(">Q", len(frame)) + frame
        self.tcp.sendall(out)

    def receive(self):
        """A whole message; None: it was a command."""
        flags, body = self._frame()
        if flags & 4:
            if body.startswith(b"\x04PING"):
                self._command(b"\x04PONG" + body[7:])
            return None
        frames = [body]
        while flags & 1:
            flags, body = self._frame()
            frames.append(body)
        return frames

    def has_input(self, seconds):
        if self.input:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self.tcp, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def next(self):
        while True:
            frames = self.receive()
            if frames is not None:
                return frames


# --- the engine

class Rank:
    def __init__(self, host, port, rank, size, flags):
        self.identity = rank.to_bytes(2, "little")
        self.rank, self.flags, self.running = rank, flags, {}
        handshake = Socket("DEALER", f"tcp://{host}:{port}", self.identity)
        handshake.send(pack({"status": "HELLO", "local": False, "headless": True}))
        self.addresses = unpack(handshake.next()[0])[0]["addresses"]
        self.inputs = [Socket("DEALER", its, self.identity) for its in self.addresses["inputs"]]
        self.outputs = [Socket("PUSH", its) for its in self.addresses["outputs"]]
        context = int(flags.get("--max-model-len", 4096))
        for its in self.inputs:
            its.send(self.facts(size, context))
        handshake.send(pack({"status": "READY", "local": False, "headless": True}))
        self.handshake = handshake

    def facts(self, size, context):
        return pack({"vllm_version": VERSION, "max_model_len": context,
                     "max_num_seqs": int(self.flags.get("--max-num-seqs", 256)),
                     "data_parallel_size": size, "num_gpu_blocks": 100,
                     "supports_lora": "--enable-lora" in self.flags,
                     "dp_stats_address": None})

    def take(self, frames):
        kind, body = frames[0], unpack(b"".join(frames[1:]))[0]
        if kind == b"\x00":
            self.running[body[0]] = [body, 0]
            if body[6] or body[7]:
                print("request:", json.dumps([body[6], body[7]]), flush=True)
        elif kind == b"\x01":
            for request in body:
                self.running.pop(request, None)
        elif kind == b"\x03":
            client, call, method, arguments = body
            print("utility:", json.dumps([method, arguments]), flush=True)
            result = [None, method == "is_sleeping" and self.sleeps or None]
            if method in ("sleep", "wake_up"):
                self.sleeps = method == "sleep"
            self.outputs[client].send(pack([self.rank, [], None, time.monotonic(),
                                            [call, None, result]]))

    sleeps = False

    def step(self):
        outputs = [[] for _ in self.outputs]
        for name, (request, count) in list(self.running.items()):
            prompt, params = request[1], request[3]
            token = prompt[count % len(prompt)]
            finish = None
            if token in params.get("stop_token_ids", ()):
                finish = 0
            elif count + 1 >= params.get("max_tokens", 16):
                finish = 1
            outputs[request[11]].append([name, [token], None, None, None, finish])
            self.running[name][1] += 1
            if finish is not None:
                del self.running[name]
        for its, socket_of_client in zip(outputs, self.outputs):
            if its:
                socket_of_client.send(pack([self.rank, its, None, time.monotonic()]))


def serve(words):
    flags, at = {}, 0
    while at < len(words):
        if words[at].startswith("--"):
            name, _, value = words[at].partition("=")
            if not value and at + 1 < len(words) and not words[at + 1].startswith("--"):
                value, at = words[at + 1], at + 1
            flags[name] = value
        at += 1
    host = os.environ.get("VLLM_DP_MASTER_IP", "")
    print("arguments:", json.dumps(words), "master:", host, flush=True)
    print("loading shards 1\rloading shards 2", file=sys.stderr, flush=True)
    if "fails" in MODE:
        print("ValueError: the model has no weights", file=sys.stderr)
        sys.exit(3)
    if "stubborn" in MODE:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "forks" in MODE:
        child = subprocess.Popen(["sleep", "600"])
        with open(os.environ["FAKE_VLLM_CHILD"], "w", encoding="ascii") as file:
            file.write(str(child.pid))
    size = int(flags.get("--data-parallel-size", 1))
    ranks = [Rank(host, int(flags["--data-parallel-rpc-port"]), rank, 1, flags)
             for rank in range(size)]
    pause = float(MODE.get("step", 0))
    while True:
        is_idle = not any(rank.running for rank in ranks)
        for rank in ranks:
            for its in rank.inputs:
                while its.has_input(0.005 if is_idle else 0):
                    frames = its.receive()
                    if frames is not None:
                        rank.take(frames)
                        is_idle = False
        for rank in ranks:
            rank.step()
        if not is_idle and "loud" in MODE:
            print("a line of the log\n" * int(MODE["loud"]), file=sys.stderr, flush=True)
        if not is_idle:
            time.sleep(pause)


def main():
    words = sys.argv[1:]
    if words[:1] == ["-c"]:
        if "floods" in MODE:
            print("a warning\n" * 100_000, file=sys.stderr)
        if "broken" in MODE:
            print("Fatal Python error: init_fs_encoding", file=sys.stderr)
            sys.exit(1)
        print(VERSION)
    elif words[:3] == ["-m", "vllm.entrypoints.cli.main", "serve"]:
        try:
            serve(words[3:])
        except ConnectionError:
            sys.exit(1)
    else:
        sys.exit(f"unknown words {words}")


if __name__ == "__main__":
    main()
