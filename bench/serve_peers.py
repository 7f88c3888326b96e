#!/usr/bin/env python3
"""Tokens that a server gives for a second of its CPU time, against servers on aiohttp.

    python3 bench/serve_peers.py SLUICE [--streams N] [--tokens N] [--step-ms MS] [--rounds N]
        [--json FILE]

SLUICE is the command. All servers get the same load from `sluice bench serve --url`, in turns, each
on a processor of its own. A token comes every step for each stream, and is written at once:
  aiohttp, frames          a template filled with a constant text: the least that such a server does
  aiohttp, text and JSON   tokens to text with tokenizers' DecodeStream where it is installed (else
                           a table of texts), a search for a stop string, json.dumps of the chunk
Ours does all of the latter, and gets its tokens from another process.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STOP = "no such stop"
TEXTS = [" the", " old", " man", " went", " down", " to", " river", " and", " saw", " it."]


class Words:
    """Text of tokens, as an incremental detokeniser gives it."""

    def __init__(self, tokenizer):
        self.stream = None
        if tokenizer is not None:
            from tokenizers.decoders import DecodeStream
            self.tokenizer = tokenizer
            self.stream = DecodeStream(skip_special_tokens=True)

    def text(self, token):
        if self.stream is None:
            return TEXTS[token % len(TEXTS)]
        return self.stream.step(self.tokenizer, 300 + token % 700) or ""


def chunk(name, text, finish=None):
    return {"id": name, "object": "text_completion", "created": 0, "model": "peer",
            "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}


def serve_aiohttp(kind, step_seconds, tokenizer_path, ready):
    """Runs a server of one kind until it is killed; writes its port to `ready`."""
    from aiohttp import web

    tokenizer = None
    if kind == "text" and tokenizer_path:
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(tokenizer_path)
    before, after = json.dumps(chunk("cmpl-1", "\0")).split("\\u0000")
    frame = f"data: {before}{TEXTS[0]}{after}\n\n".encode()
    live = []

    async def completions(request):
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        stream = {"response": response, "left": body["max_tokens"], "done": asyncio.Event(),
                  "words": Words(tokenizer), "tail": "", "tokens": 0}
        live.append(stream)
        await stream["done"].wait()
        usage = chunk("cmpl-1", "")
        usage.update(choices=[], usage={"prompt_tokens": 4, "completion_tokens": stream["tokens"]})
        await response.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        await response.write_eof()
        return response

    def next_frame(stream):
        if kind == "frames":
            return frame
        text = stream["words"].text(stream["tokens"])
        seen = stream["tail"] + text
        if STOP in seen:
            stream["left"] = 1
        stream["tail"] = seen[-len(STOP):]
        return f"data: {json.dumps(chunk('cmpl-1', text))}\n\n".encode()

    async def step():
        """What a step gives every stream, without a task to wake for each."""
        due = time.monotonic()
        while True:
            due = max(due + step_seconds, time.monotonic() - step_seconds)
            await asyncio.sleep(max(0, due - time.monotonic()))
            for stream in list(live):
                await stream["response"].write(next_frame(stream))
                stream["tokens"] += 1
                stream["left"] -= 1
                if stream["left"] == 0:
                    live.remove(stream)
                    stream["done"].set()

    async def main():
        application = web.Application()
        application.router.add_post("/v1/completions", completions)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        Path(ready).write_text(str(port))
        await step()

    os.sched_setaffinity(0, {0})
    asyncio.run(main())


def wait_for(path, process):
    while not (path.exists() and path.read_text()):
        if process.poll() is not None:
            sys.exit("serve_peers: a server ended before it listened")
        time.sleep(0.02)
    return path.read_text()


class Server:
    def __init__(self, name, processes, url, pid):
        self.name, self.processes, self.url, self.pid = name, processes, url, pid

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def start_peer(kind, arguments, folder):
    ready = Path(folder) / f"{kind}.port"
    command = [sys.executable, __file__, "--serve", kind, "--ready", str(ready),
               "--step-ms", str(arguments.step_ms), arguments.sluice]
    if arguments.tokenizer:
        command += ["--tokenizer", arguments.tokenizer]
    process = subprocess.Popen(command)
    port = wait_for(ready, process)
    name = {"frames": "aiohttp, frames", "text": "aiohttp, text and JSON"}[kind]
    return Server(name, [process], f"http://127.0.0.1:{port}", process.pid)


def start_sluice(arguments):
    endpoint = f"ipc://@sluice-serve-peers-{os.getpid()}"
    engine = subprocess.Popen(
        [arguments.sluice, "mock-engine", "--listen", endpoint, "--echo", "--batch",
         str(arguments.streams), "--rate", str(1000 / arguments.step_ms)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {1}))
    engine.stdout.readline()
    server = subprocess.Popen(
        [arguments.sluice, "serve", "--engine", endpoint, "--port", "0", "--quiet"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {0}))
    line = server.stdout.readline()
    return Server("sluice", [server, engine], line.split()[-1], server.pid)


def load(arguments, server, folder):
    """Tokens a CPU-second, and the p99 of the time between two tokens."""
    result = Path(folder) / "load.json"
    subprocess.run(
        [arguments.sluice, "bench", "serve", "--url", server.url, "--pid", str(server.pid),
         "--requests", str(arguments.streams), "--output-tokens", str(arguments.tokens),
         "--prompt-tokens", "4", "--json", str(result)],
        check=True, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {1}))
    whole = json.loads(result.read_text())
    row = whole["rows"][0]
    return whole, row["output tokens per CPU-second of the server"], row["itl_ms"]["p99"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sluice")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--step-ms", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokenizer", default="", help="a tokenizer.json for the peer's text")
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", choices=["frames", "text"], help=argparse.SUPPRESS)
    parser.add_argument("--ready", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        import aiohttp
    except ImportError:
        sys.exit("serve_peers: aiohttp is missing; pip install aiohttp tokenizers")
    if arguments.serve:
        serve_aiohttp(arguments.serve, arguments.step_ms / 1000, arguments.tokenizer,
                      arguments.ready)
        return

    with tempfile.TemporaryDirectory() as folder:
        starts = [lambda: start_sluice(arguments), lambda: start_peer("frames", arguments, folder),
                  lambda: start_peer("text", arguments, folder)]
        figures = {}
        whole = None
        for _ in range(arguments.rounds):
            for start in starts:
                server = start()
                try:
                    whole, rate, latency = load(arguments, server, folder)
                finally:
                    server.close()
                    for old in Path(folder).glob("*.port"):
                        old.unlink()
                figures.setdefault(server.name, []).append((rate, latency))
    ours = statistics.median(rate for rate, _ in figures["sluice"])
    rows = []
    for name, values in figures.items():
        rate = statistics.median(rate for rate, _ in values)
        rows.append({"bench": "serve-peers", "task": "tokens, one a write", "peer": name,
                     "streams": arguments.streams, "step_ms": arguments.step_ms,
                     "tokens_per_cpu_second": round(rate), "ours_by_it": round(ours / rate, 2),
                     "itl_p99_ms": round(statistics.median(late for _, late in values), 2)})
        print(f"  {name:26} {rate:10.0f} tokens a CPU-second   x{ours / rate:.2f}   "
              f"ITL p99 {rows[-1]['itl_p99_ms']} ms")
    if arguments.json:
        env = dict(whole["env"], python=sys.version.split()[0], aiohttp=aiohttp.__version__)
        text = ",\n".join(json.dumps(row) for row in rows)
        Path(arguments.json).write_text(
            f'{{"env": {json.dumps(env)}, "commit": "{whole["commit"]}", "rows": [\n{text}\n]}}\n')


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
