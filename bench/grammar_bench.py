#!/usr/bin/env python3
"""A grammar's own calls, next to xgrammar's Python package, in turns: compile a schema, find it again,
fill masks.

    python3 bench/grammar_bench.py CALLS --grammar-library FOLDER --json FILE [--tokenizer FILE ...]

CALLS is build/release/cli/sluice_grammar_calls (cmake --build --preset release --target it). This Python
needs the packages xgrammar and torch, of the version that FOLDER has. Both sides have the same vocabulary, the
same schemas and the same tokens, which a random text of the schema has. A mask of xgrammar's is a call of
fill_next_token_bitmask for each row, as engines in Python make it, or one call of its batch with threads of
its own. Every figure is the median of the rounds.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

TYPES = ({"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 999}, {"type": "boolean"},
         {"enum": ["north", "east", "south", "west"]}, {"type": "array", "items": {"type": "number"}})


def properties(name: str, count: int) -> dict:
    fields = {f"{name}_{i}": TYPES[i % len(TYPES)] for i in range(count)}
    return {"type": "object", "properties": fields, "required": list(fields)}


def people(name: dict) -> dict:
    return {"type": "array", "minItems": 2000, "items": {
        "type": "object", "properties": {"name": name, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                         "mood": {"enum": ["glad", "sad", "calm"]}},
        "required": ["name", "age", "mood"]}}


SCHEMAS = {"40": properties("field", 40), "40 others": properties("other", 40),
           "name": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 100}}},
           "title": {"type": "object", "properties": {"title": {"type": "string", "maxLength": 100}}},
           "people": people({"type": "string"}),
           "people, bounded names": people({"type": "string", "minLength": 1, "maxLength": 20})}
# The last one is timed, by a compiler that has done those before it.
COMPILED = {"40 properties": ["40"], "40 properties, after others": ["40 others", "40"],
            "a string of at most 100": ["name"], "a string of at most 100, after another": ["title", "name"]}


class Ours:
    def __init__(self, calls: str, tokenizer: str, library: str, folder: str):
        self.folder = folder
        self.process = subprocess.Popen([calls, tokenizer, library, "0"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def call(self, line: str) -> list:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"{line}: no answer")
        return [float(one) for one in answer]

    def compile(self, names: list) -> list:
        return self.call("compile " + " ".join(f"{self.folder}/{list(SCHEMAS).index(name)}.json" for name in names))

    def fill(self, name: str, tokens: str, rows: int) -> list:
        return self.call(f"fill {self.folder}/{list(SCHEMAS).index(name)}.json {tokens} {rows}")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Peer:
    """xgrammar's Python calls."""

    def __init__(self, tokenizer: str):
        import numpy
        import torch
        import xgrammar
        torch.set_num_threads(1)
        with open(tokenizer, encoding="utf-8") as file:
            read = json.load(file)
        ids = dict(read["model"]["vocab"])
        ids.update({one["content"]: one["id"] for one in read.get("added_tokens", [])})
        self.numpy, self.xgrammar, self.tokens = numpy, xgrammar, sorted(ids, key=ids.get)
        self.info = xgrammar.TokenizerInfo(self.tokens, vocab_type=xgrammar.VocabType.BYTE_LEVEL, stop_token_ids=[0])

    def compiler(self):
        return self.xgrammar.GrammarCompiler(self.info, max_threads=1)

    @staticmethod
    def one(compiler, name: str):
        return compiler.compile_json_schema(json.dumps(SCHEMAS[name]), any_whitespace=True, max_whitespace_cnt=1)

    def compile(self, names: list) -> list:
        compiler, times = self.compiler(), [0, 0]
        for name in names:
            for i in range(2):
                start = time.perf_counter_ns()
                self.one(compiler, name)
                times[i] = time.perf_counter_ns() - start
        return times

    def text(self, name: str, count: int) -> list:
        """The tokens of a random text. It has no control characters, which xgrammar lets into strings of a
        bounded length and JSON does not have."""
        has_none = self.numpy.array([not any("\u0100" <= one < "\u0120" for one in token) for token in self.tokens])
        bitmask = self.xgrammar.allocate_token_bitmask(1, len(self.tokens))
        matcher, chosen, ids = self.xgrammar.GrammarMatcher(self.one(self.compiler(), name)), random.Random(1), []
        for _ in range(count):
            matcher.fill_next_token_bitmask(bitmask)
            bits = self.numpy.unpackbits(bitmask[0].numpy().view(self.numpy.uint8), bitorder="little")
            ids.append(int(chosen.choice(self.numpy.flatnonzero(bits[:len(self.tokens)] & has_none))))
            matcher.accept_token(ids[-1])
        return ids

    def fill(self, name: str, tokens: list, rows: int, threads: int) -> list:
        grammar = self.one(self.compiler(), name)
        matchers = [self.xgrammar.GrammarMatcher(grammar) for _ in range(rows)]
        bitmask, times = self.xgrammar.allocate_token_bitmask(rows, len(self.tokens)), []
        batch = self.xgrammar.BatchGrammarMatcher(max_threads=threads) if threads else None
        for token in tokens:
            start = time.perf_counter_ns()
            if batch is not None:
                batch.batch_fill_next_token_bitmask(matchers, bitmask)
            else:
                for row, matcher in enumerate(matchers):
                    matcher.fill_next_token_bitmask(bitmask, row)
            times.append(time.perf_counter_ns() - start)
            for matcher in matchers:
                if not matcher.accept_token(token):
                    raise SystemExit("a token is refused")
        return [statistics.mean(times) / rows, statistics.median(times) / rows]


def median(rounds: list, place: int) -> float:
    return statistics.median(one[place] for one in rounds)


def measure(arguments, tokenizer: str, folder: str) -> list:
    peer, ours, rows = Peer(tokenizer), Ours(arguments.calls, tokenizer, arguments.grammar_library, folder), []
    base = {"bench": "grammar", "vocab": len(peer.tokens)}
    for task, names in COMPILED.items():
        rounds = [(ours.compile(names), peer.compile(names)) for _ in range(arguments.rounds)]
        for field, place in (("compile", 0), ("compile again", 1)):
            rows.append({**base, "task": field, "schema": task, "ns": median([one for one, _ in rounds], place),
                         "peer": "xgrammar in Python", "peer_ns": median([other for _, other in rounds], place)})
            print(rows[-1], flush=True)
    for name in ("people", "people, bounded names"):
        tokens = peer.text(name, arguments.tokens)
        path = f"{folder}/tokens"
        Path(path).write_text(" ".join(map(str, tokens)), encoding="utf-8")
        for batch in arguments.batches:
            rounds = [(ours.fill(name, path, batch), peer.fill(name, tokens, batch, 0), peer.fill(name, tokens, batch, 2))
                      for _ in range(arguments.rounds)]
            for i, peer_name in ((1, "xgrammar in Python"), (2, "xgrammar in Python, batch")):
                rows.append({**base, "task": "fill", "schema": name, "batch": batch,
                             "ns": median([one[0] for one in rounds], 1),
                             "mean_ns": median([one[0] for one in rounds], 0),
                             "peer": peer_name, "peer_ns": median([one[i] for one in rounds], 1),
                             "peer_mean_ns": median([one[i] for one in rounds], 0)})
                print(rows[-1], flush=True)
    ours.close()
    return rows


def environment() -> dict:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return {"cpu": cpu, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("calls")
    parser.add_argument("--grammar-library", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--tokenizer", nargs="+", default=["models/default/tokenizer.json"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64])
    arguments = parser.parse_args()
    commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for i, schema in enumerate(SCHEMAS.values()):
            Path(folder, f"{i}.json").write_text(json.dumps(schema), encoding="utf-8")
        for tokenizer in arguments.tokenizer:
            rows += measure(arguments, tokenizer, folder)
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"env": environment(), "commit": commit, "rows": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
