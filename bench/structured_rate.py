#!/usr/bin/env python3
"""Tokens a second with a JSON schema, of those without: engines of a script with steps of 1 ms and of
the built-in model, one to 64 texts at once, with no step in flight and with one.

    python3 bench/structured_rate.py SLUICE --json FILE [--runs N] [--engines NAME ...]

The rate is that of the engine's step loop: tokens by the time of its model and its own. Each pair of
runs, with the schema and without, is made in turns; `share` is the median of their ratios. mask_waits
counts the draws that came before their mask was filled.

With the packages xgrammar and torch, what xgrammar's own Python calls take for a token of the same
schema and vocabulary is measured in the same run: accept_token and fill_next_token_bitmask. With them
tokens of the built-in model's texts are counted too: those that were the only one allowed (`alone`), and
those within bytes that every continuation begins with (`forced`).
"""

import argparse
import itertools
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import tempfile
import time

ENGINES = {"script": (["mock-engine", "--step-us", "1000"], 1000), "model": (["engine"], 200)}
PROMPT = "Once upon a time"


def people(name: dict) -> dict:
    """No text of it is complete within the tokens of a run, so all rows are drawn in every step."""
    return {"type": "array", "minItems": 2000, "items": {
        "type": "object",
        "properties": {"name": name, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                       "mood": {"enum": ["glad", "sad", "calm"]},
                       "place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
                           "near": {"type": "boolean"}}, "required": ["near"]}]}},
        "required": ["name", "age", "mood", "place"]}}


# In a string with a bound the grammar engine tries each token that may be too long for the rest.
SCHEMAS = {"people": people({"type": "string"}),
           "people, bounded names": people({"type": "string", "minLength": 1, "maxLength": 20})}


def run(sluice: str, engine: str, batch: int, in_flight: int, tokens: int, more: list) -> dict:
    """The counters of an engine that has given so many texts their tokens."""
    command, _ = ENGINES[engine]
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/engine"
        batch_flag = "--batch" if engine == "script" else "--max-requests"
        with subprocess.Popen([sluice, *command, "--listen", endpoint, "--quiet", "--json", batch_flag, str(batch),
                               "--steps-in-flight", str(in_flight)], stdout=subprocess.PIPE, text=True) as process:
            try:
                subprocess.run([sluice, "generate", PROMPT, "--engine", endpoint, "-n", str(batch), "--max-tokens",
                                str(tokens), "--seed", "1", "--ignore-eos", "--quiet", *more], check=True,
                               stdout=subprocess.DEVNULL)
            finally:
                process.send_signal(signal.SIGINT)
            written, _ = process.communicate()
    counters = json.loads(written.splitlines()[-1])["engine"]
    if counters["tokens_given"] != batch * tokens:
        raise SystemExit(f"{counters['tokens_given']} tokens instead of {batch * tokens}: a text has ended")
    return counters


def rate(counters: dict) -> float:
    return counters["tokens"] / (counters["model_ns"] + counters["own_ns"]) * 1e9


def measure(sluice: str, folder: str, engines: list, batches: list, runs: int) -> list:
    rows = []
    for engine in engines:
        tokens = ENGINES[engine][1]
        for name, batch, in_flight in itertools.product(SCHEMAS, batches, (0, 1)):
            schema = f"{folder}/{name}.json"
            pairs = []
            for _ in range(runs):
                pairs.append((run(sluice, engine, batch, in_flight, tokens, ["--json-schema", schema]),
                              run(sluice, engine, batch, in_flight, tokens, [])))
            masked = [pair[0] for pair in pairs]
            rows.append({"bench": "structured", "task": engine, "schema": name, "batch": batch,
                         "steps_in_flight": in_flight,
                         "tokens_per_second": statistics.median(rate(one) for one in masked),
                         "without": statistics.median(rate(pair[1]) for pair in pairs),
                         "share": statistics.median(rate(one) / rate(other) for one, other in pairs),
                         **{field: statistics.median(one[field] for one in masked)
                            for field in ("masks", "mask_waits", "mask_wait_ns")}})
            print(rows[-1], flush=True)
    return rows


class Peer:
    """xgrammar's Python calls over the model's vocabulary."""

    def __init__(self, model: str):
        import numpy
        import torch
        import xgrammar
        torch.set_num_threads(1)
        with open(f"{model}/tokenizer.json", encoding="utf-8") as file:
            ids = json.load(file)["model"]["vocab"]
        self.numpy, self.xgrammar, self.tokens = numpy, xgrammar, sorted(ids, key=ids.get)
        info = xgrammar.TokenizerInfo(self.tokens, vocab_type=xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[0])
        self.compiler = xgrammar.GrammarCompiler(info)
        self.bitmask = xgrammar.allocate_token_bitmask(1, len(self.tokens))

    def compile(self, schema: dict):
        return self.compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, max_whitespace_cnt=1)

    def allowed(self):
        bits = self.numpy.unpackbits(self.bitmask[0].numpy().view(self.numpy.uint8), bitorder="little")
        return self.numpy.flatnonzero(bits[:len(self.tokens)])

    def times(self, name: str, tokens: int = 1000) -> dict:
        """What a token of one random text takes."""
        begin = time.perf_counter_ns()
        grammar = self.compile(SCHEMAS[name])
        row = {"bench": "structured", "task": "xgrammar in Python", "schema": name, "batch": 1,
               "compile_ns": time.perf_counter_ns() - begin}
        matcher, chosen, fill_ns, accept_ns = self.xgrammar.GrammarMatcher(grammar), random.Random(1), [], []
        for _ in range(tokens):
            begin = time.perf_counter_ns()
            matcher.fill_next_token_bitmask(self.bitmask)
            fill_ns.append(time.perf_counter_ns() - begin)
            token = int(chosen.choice(self.allowed()))
            begin = time.perf_counter_ns()
            matcher.accept_token(token)
            accept_ns.append(time.perf_counter_ns() - begin)
        for field, values in (("fill", fill_ns), ("accept", accept_ns)):
            row[f"{field}_ns"] = statistics.median(values)
            row[f"{field}_mean_ns"] = statistics.mean(values)
        row["fill_high_ns"] = sorted(fill_ns)[-tokens // 100]
        return row

    def forced(self, sluice: str, name: str, schema: str) -> dict:
        """Of the tokens that the built-in model gives: how many were decided before the draw."""
        command = [sluice, "generate", PROMPT, "-n", "8", "--seed", "3", "--max-tokens", "250", "--json", "--quiet"]
        written = subprocess.run([*command, "--json-schema", schema], check=True, capture_output=True,
                                 text=True).stdout
        grammar = self.compile(SCHEMAS[name])
        row = {"bench": "structured", "task": "forced", "schema": name, "tokens": 0, "alone": 0, "forced": 0}
        for choice in json.loads(written)["choices"]:
            matcher, left = self.xgrammar.GrammarMatcher(grammar), 0
            for token in choice["token_ids"]:
                matcher.fill_next_token_bitmask(self.bitmask)
                row["alone"] += int(len(self.allowed()) == 1)
                if left <= 0:
                    left = len(matcher.find_jump_forward_string())
                left -= len(self.tokens[token])
                row["forced"] += int(left >= 0)
                row["tokens"] += 1
                if not matcher.accept_token(token):
                    raise SystemExit(f"xgrammar refuses token {token} of {name}")
        return row


def peer_rows(sluice: str, model: str, folder: str) -> list:
    try:
        peer = Peer(model)
    except ImportError as missing:
        print(f"without xgrammar's Python calls: {missing}")
        return []
    rows = []
    for name in SCHEMAS:
        rows += [peer.times(name), peer.forced(sluice, name, f"{folder}/{name}.json")]
        print(rows[-2:], flush=True)
    return rows


def environment() -> dict:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return {"cpu": cpu, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", default="models/default", help="the folder with the built-in model's tokenizer.json")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        for name, schema in SCHEMAS.items():
            with open(f"{folder}/{name}.json", "w", encoding="utf-8") as file:
                json.dump(schema, file)
        rows = measure(arguments.sluice, folder, arguments.engines, arguments.batches, arguments.runs)
        rows += peer_rows(arguments.sluice, arguments.model, folder)
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"env": environment(), "commit": commit, "rows": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
