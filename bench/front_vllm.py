#!/usr/bin/env python3
"""vLLM's server, its Rust front end and Sluice over the same engine, under the same load.

    python3 bench/front_vllm.py --json OUT.json --model NAME=DIR [--model 1b] [--sluice PROGRAM]
        [--front vllm --front vllm-rs --front sluice] [--streams 1,32,256,512,256:20]
        [--logprobs 0,5] [--repetitions 5] [--seconds 540] [--memory 0.28] [--threads 1]
        [-- ENGINE ARGUMENTS]

0.1b, 1b and 8b are models of that size with made-up weights (front_shapes.py). 256:20 is 256
streams with 20 log-probabilities a token, whatever --logprobs says.

Engines load in turns and live at the same time on one GPU, each with --memory of it. Then the same
loads go to one front after the other: each repetition has every number of streams, and each number
of streams every front, in an order that turns round. A cell's first load warms up and is not
counted. It ends within --seconds, and OUT.json has a row of each load as soon as that is done.
tokens_per_cpu_second counts the front's processes, not the engine's.

--command FRONT=LINE starts something else as a front, with {port}, {model}, {engine_port}; a second
line of the same front is its engine.
"""

import argparse
import itertools
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import front_shapes
import fronts

SHOWN = {"vllm": "vLLM", "vllm-rs": "vLLM, Rust front end", "sluice": "Sluice"}
SERVED = "m"
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
         "VLLM_USE_DEEP_GEMM": "0", "VLLM_LOGGING_LEVEL": "WARNING",
         "VLLM_USE_FLASHINFER_SAMPLER": "0", "SLUICE_VLLM": "off"}
END_SECONDS = 20  # to end engines, in the time that --seconds gives
MOST_REQUESTS = 1536


def numbers(text):
    return [int(item) for item in text.split(",")]


def stream_cells(text):
    """(streams, logprobs), None where --logprobs says it."""
    pairs = [item.partition(":") for item in text.split(",")]
    return [(int(streams), int(logprobs) if logprobs else None) for streams, _, logprobs in pairs]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument("--model", action="append", required=True,
                        metavar="NAME=DIR|" + "|".join(front_shapes.SHAPES))
    parser.add_argument("--front", action="append", choices=SHOWN)
    parser.add_argument("--streams", type=stream_cells, default=stream_cells("1,32,256,512"))
    parser.add_argument("--logprobs", type=numbers, default=[0])
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=540, help="it ends within this time")
    parser.add_argument("--ready", type=float, default=240, help="seconds that an engine gets")
    parser.add_argument("--memory", type=float, default=0.28, help="of the GPU, for each engine")
    parser.add_argument("--max-model-len", type=int, default=1024)
    parser.add_argument("--max-num-seqs", type=int, default=0, help="0: the most streams")
    parser.add_argument("--load-format", default="dummy", help="dummy: weights are made up")
    parser.add_argument("--python", default="python3", help="the one that has vLLM")
    parser.add_argument("--sluice", default="build/release/sluice")
    parser.add_argument("--threads", type=int, default=1, help="of sluice serve")
    parser.add_argument("--sluice-lib", help="LD_LIBRARY_PATH of that program alone")
    parser.add_argument("--commit", default="")
    parser.add_argument("--logs", type=Path, help="a folder; without it one that is made")
    parser.add_argument("--command", action="append", default=[], metavar="FRONT=LINE")
    parser.add_argument("engine", nargs="*", help="more arguments of vLLM")
    given = parser.parse_args()
    given.front = given.front or list(SHOWN)
    given.commands = {}
    for item in given.command:
        name, line = item.split("=", 1)
        given.commands.setdefault(name, []).append(line)
    given.cells = [(streams, logprobs) for streams, only in given.streams
                   for logprobs in (given.logprobs if only is None else [only])]
    given.most_streams = max(streams for streams, _ in given.cells)
    given.max_num_seqs = given.max_num_seqs or given.most_streams
    return given


def environment(options):
    env = {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0)),
           "os": f"{platform.system()} {platform.release()} {platform.machine()}"}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            env["cpu"] = line.split(":")[1].strip()
            break
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        env["gpu"], env["driver"] = said.strip().splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError):
        env["gpu"] = None
    script = ("import importlib.metadata as m, json\nv = {}\n"
              "for n in ('vllm', 'torch', 'triton'):\n"
              "    try: v[n] = m.version(n)\n    except m.PackageNotFoundError: v[n] = None\n"
              "print(json.dumps(v))")
    try:
        found = subprocess.run([options.python, "-c", script], capture_output=True, text=True)
        env.update(json.loads(found.stdout))
    except (OSError, ValueError):
        pass
    return env


def library(options):
    return {"LD_LIBRARY_PATH": options.sluice_lib} if options.sluice_lib else {}


def commands(front, model, port, options):
    """Command lines with their variables, the front first."""
    engine_port = fronts.free_port()
    if front in options.commands:
        places = {"port": port, "model": model, "engine_port": engine_port}
        return [(shlex.split(line.format(**places)), {}) for line in options.commands[front]]
    vllm = [options.python, "-m", "vllm.entrypoints.cli.main", "serve", model]
    engine = ["--load-format", options.load_format, "--max-model-len", str(options.max_model_len),
              "--max-num-seqs", str(options.max_num_seqs), "--gpu-memory-utilization",
              str(options.memory), "--no-enable-prefix-caching", *options.engine]
    if front == "sluice":
        serve = [options.sluice, "serve", "--model", model, "--name", SERVED, "--engine",
                 f"vllm+tcp://127.0.0.1:{engine_port}", "--port", str(port), "--max-requests",
                 str(options.most_streams * 2), "--threads", str(options.threads)]
        return [(serve, library(options)),
                ([*vllm, "--headless", "--data-parallel-rpc-port", str(engine_port), *engine],
                 {"VLLM_DP_MASTER_IP": "127.0.0.1"})]
    serve = [*vllm, "--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port)]
    return [([*serve, *engine], {"VLLM_USE_RUST_FRONTEND": "1" if front == "vllm-rs" else "0"})]


class Bench:
    def __init__(self, options):
        self.options, self.end = options, time.monotonic() + options.seconds - END_SECONDS
        self.logs = options.logs or Path(tempfile.mkdtemp(prefix="front_vllm-"))
        self.logs.mkdir(parents=True, exist_ok=True)
        self.living, self.rows, self.starts = [], [], []
        self.seconds = {}  # the last load of a cell and its warm-up
        self.env = environment(options)

    def left(self):
        return self.end - time.monotonic()

    def write(self):
        options = self.options
        head = {"env": self.env, "commit": options.commit, "options": {
            "prompt_tokens": options.prompt_tokens, "output_tokens": options.output_tokens,
            "threads": options.threads, "max_num_seqs": options.max_num_seqs, "max_model_len": options.max_model_len,
            "load_format": options.load_format, "memory": options.memory,
            "engine": " ".join(options.engine)}, "starts": self.starts}
        text = json.dumps(head)[:-1] + ', "rows": [\n'
        text += ",\n".join(json.dumps(row) for row in self.rows) + "\n]}\n"
        part = options.json.with_suffix(".part")
        part.write_text(text)
        part.replace(options.json)

    def start(self, front, model_name, model):
        port = fronts.free_port()
        lines = commands(front, model, port, self.options)
        one = fronts.Front(front, port, self.logs / f"{model_name}-{front}.log")
        self.living.append(one)
        try:
            one.start(lines, QUIET)
            why = one.wait(min(self.options.ready, self.left()))
        except OSError as error:
            why = str(error)
        if why is None:
            print(f"{model_name}, {SHOWN[front]}: ready after {one.ready_after:.0f} s", flush=True)
        else:
            print(f"{model_name}, {SHOWN[front]}: {why}; {one.log}:\n{one.tail()}", flush=True)
            self.living.remove(one)
            fronts.end([one])
        self.starts.append({"model": model_name, "front": SHOWN[front], "why_not": why,
                            "ready_after_s": one.ready_after and round(one.ready_after, 1)})
        self.write()

    def load(self, front, streams, logprobs, requests, tokens, seed):
        """What `sluice bench serve` found, with the CPU time and memory of the front."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            line = [self.options.sluice, "bench", "serve", "--url", front.url, "--model", SERVED,
                    "--concurrency", str(streams), "--requests", str(requests), "--prompt-tokens",
                    str(self.options.prompt_tokens), "--output-tokens", str(tokens), "--seed",
                    str(seed), "--json", file.name]
            if logprobs:
                line += ["--logprobs", str(logprobs)]
            before = front.cpu_seconds()
            try:
                done = subprocess.run(line, capture_output=True, text=True,
                                      timeout=max(1.0, self.left()),
                                      env={**os.environ, **library(self.options)})
            except subprocess.TimeoutExpired:
                return None, "the time is over"
            cpu = front.cpu_seconds() - before
            text = Path(file.name).read_text()
        if not text:
            return None, done.stderr.strip()[-500:]
        found = json.loads(text)["rows"][0]
        found["cpu_s"], found["resident_mb"] = cpu, front.resident_mb()
        return found, done.stderr.strip()[-500:] if done.returncode else None

    def measure(self, model, front, streams, logprobs, repetition):
        options = self.options
        cell = (front.name, streams, logprobs)
        requests = min(max(8, 3 * streams), max(MOST_REQUESTS, streams))
        begin = time.monotonic()
        if cell not in self.seconds:
            few = min(32, options.output_tokens)
            _, why = self.load(front, streams, logprobs, max(4, streams), few, 1)
            if why:
                print(f"{SHOWN[front.name]}, {streams} streams: the warm-up failed: {why}")
        found, why = self.load(front, streams, logprobs, requests, options.output_tokens,
                               repetition + 2)
        self.seconds[cell] = time.monotonic() - begin
        if why:
            print(f"{SHOWN[front.name]}, {streams} streams: {why}", flush=True)
        if found is None:
            return
        tokens, cpu = found["total generated tokens"], found["cpu_s"]
        row = {"bench": "front", "front": SHOWN[front.name], "model": model, "streams": streams,
               "logprobs": logprobs, "repetition": repetition, "requests": requests,
               "failed": found["failed requests"],
               "tokens_s": round(found["output token throughput (tok/s)"], 1),
               "tokens_per_cpu_second": round(tokens / cpu) if cpu > 0 else None,
               "cpu_s": round(cpu, 2), "resident_mb": round(found["resident_mb"], 1)}
        for short, long in (("ttft", "ttft_ms"), ("tpot", "tpot_ms"), ("itl", "itl_ms"),
                            ("e2el", "e2el_ms")):
            row[f"{short}_p50_ms"] = round(found[long]["median"], 3)
            row[f"{short}_p99_ms"] = round(found[long]["p99"], 3)
        self.rows.append(row)
        self.write()

    def run_model(self, model_name, model):
        for front in self.options.front:
            if self.left() > 0:
                self.start(front, model_name, model)
        self.seconds = {}
        cells = itertools.product(range(self.options.repetitions), self.options.cells)
        for repetition, (streams, logprobs) in cells:
            for front in self.living[::-1 if repetition % 2 else 1]:
                takes = self.seconds.get((front.name, streams, logprobs), 0)
                if takes * 1.2 + 1 < self.left():
                    self.measure(model_name, front, streams, logprobs, repetition)
        fronts.end(self.living)
        self.living = []

    def run(self):
        self.write()
        try:
            for item in self.options.model:
                name, _, folder = item.rpartition("=")
                if not name and folder in front_shapes.SHAPES:
                    name, folder = folder, front_shapes.write(folder, self.logs / f"model-{folder}")
                if self.left() > 0:
                    self.run_model(name or Path(folder).name, folder)
        finally:
            fronts.end(self.living)
            self.write()
        self.show()

    def show(self):
        """Medians over the repetitions, with the lowest and the highest of tokens/s."""
        head = ("model", "streams", "logprobs", "front", "turns", "tokens/s", "lowest", "highest",
                "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "tokens/CPU-s", "MB", "failed")
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        key = lambda row: (row["model"], row["streams"], row["logprobs"], row["front"])
        for cell, group in itertools.groupby(sorted(self.rows, key=key), key):
            rows = list(group)

            def middle(name):
                values = [row[name] for row in rows if row[name] is not None]
                return statistics.median(values) if values else float("nan")

            speeds = [row["tokens_s"] for row in rows]
            shown = [*map(str, cell), str(len(rows)), f"{middle('tokens_s'):.0f}",
                     f"{min(speeds):.0f}", f"{max(speeds):.0f}"]
            shown += [f"{middle(name):.2f}" for name in ("ttft_p50_ms", "ttft_p99_ms",
                                                         "itl_p50_ms", "itl_p99_ms")]
            shown += [f"{middle('tokens_per_cpu_second'):.0f}", f"{middle('resident_mb'):.0f}",
                      str(int(sum(row["failed"] for row in rows)))]
            print("| " + " | ".join(shown) + " |")


def main():
    # A signal ends the engines, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("front_vllm: ended by a signal"))
    Bench(arguments()).run()


if __name__ == "__main__":
    main()
