#!/usr/bin/env python3
"""Requests with JSON schemas on a sampler, with drafts, preemption, aborts and cuts: every text that ends matches.

Usage: grammar_soak.py [--backend cuda|cpu] [--requests 10000] [--slots 256] [--json FILE]. Logits are random, so that
only the masks make a text right. Of one request in fifty a Sampler on the CPU gives every token again from the
same logits, without drafts and without what happened on the way. Exit code 77: skipped.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import sluice

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
from structured_schemas import SCHEMAS, matches  # noqa: E402

MODEL = ROOT / "models" / "default"
END, MOST_DRAFTS, MOST_TOKENS = 0, 3, 400
PARAMS = [{"temperature": 1.0}, {"temperature": 0.0}, {"temperature": 1.3, "top_k": 50}, {"temperature": 0.8, "top_p": 0.9},
          {"temperature": 1.0, "min_p": 0.02, "repetition_penalty": 1.1, "logit_bias": {7: 2.0}}]


class HostRows:
    """A sluice.Sampler, and logits on the host."""

    def __init__(self, vocab, slots):
        self.sampler = sluice.Sampler(vocab=vocab, max_requests=slots)
        self.vocab, self.source = vocab, np.random.default_rng(1)

    def logits(self, rows):
        return self.source.normal(scale=3, size=(rows, self.vocab)).astype(np.float32)

    def step(self, logits, requests):
        return self.sampler.step(logits, requests)

    def row(self, logits, at):
        return logits[at].copy()


class DeviceRows:
    """A sluice.DeviceSampler, and logits on the device."""

    def __init__(self, vocab, slots):
        import torch

        self.torch, self.vocab = torch, vocab
        self.sampler = sluice.DeviceSampler(vocab=vocab, max_requests=slots, max_drafts=MOST_DRAFTS, max_tokens=1024)
        self.source = torch.Generator("cuda").manual_seed(1)

    def logits(self, rows):
        return 3 * self.torch.randn((rows, self.vocab), generator=self.source, device="cuda")

    def step(self, logits, requests):
        return self.sampler.step(logits, requests).get()

    def row(self, logits, at):
        return logits[at].cpu().numpy()


class Request:
    """One answer on its way."""

    def __init__(self, number, grammar, choose):
        self.name = list(SCHEMAS)[number % len(SCHEMAS)]
        self.params = {**choose.choice(PARAMS), "seed": number}
        self.most = choose.randrange(1, 20) if choose.random() < 0.1 else MOST_TOKENS
        self.is_aborted_at = choose.randrange(1, 30) if choose.random() < 0.03 else None
        self.matcher = sluice.GrammarMatcher(grammar)
        self.masks = np.empty((MOST_DRAFTS + 1, grammar.mask_words), np.int32)
        self.handle, self.tokens = None, []
        self.rows = [] if number % 50 == 0 else None  # the mask and the logits of each token, to replay it

    def propose(self, choose):
        """Drafts that the grammar allows, and a mask for each and for what follows."""
        drafts = []
        for at in range(choose.randrange(MOST_DRAFTS + 1)):
            self.matcher.fill_mask(self.masks[at])
            bits = np.unpackbits(self.masks[at].view(np.uint8), bitorder="little")
            token = int(choose.choice(np.flatnonzero(bits[:8192]).tolist()))
            if token == END or not self.matcher.accept(token):
                break
            drafts.append(token)
        self.matcher.fill_mask(self.masks[len(drafts)])
        self.matcher.rollback(len(drafts))
        return drafts


def replay(request, vocab):
    """Whether a sampler of its own draws the same tokens."""
    sampler = sluice.Sampler(vocab=vocab, max_requests=1)
    handle = sampler.add(**request.params)
    for token, (mask, logits) in zip(request.tokens, request.rows):
        [given] = sampler.step(logits[None], [sluice.StepRequest(handle, bitmask=mask)]).ids.tolist()
        if given != token:
            sys.exit(f"request {request.params}: {given} instead of {token}, token {sampler}")
    return len(request.tokens)


def run(rows, grammars, vocab, options):
    choose, counts = random.Random(7), dict.fromkeys(
        ("tokens", "steps", "drafts", "accepted", "preemptions", "aborted", "cut", "ended", "matching", "replayed"), 0)
    live, started = [], 0
    names = list(SCHEMAS)
    while live or started < options.requests:
        while len(live) < options.slots and started < options.requests:
            request = Request(started, grammars[names[started % len(names)]], choose)
            request.handle = rows.sampler.add(**request.params)
            live.append(request)
            started += 1
        for request in live:
            if choose.random() < 0.002:  # preempted: another slot, and its tokens again
                rows.sampler.remove(request.handle)
                request.handle = rows.sampler.add(**request.params)
                if request.tokens:
                    rows.sampler.accept(request.handle, request.tokens)
                counts["preemptions"] += 1
        drafts = [request.propose(choose) for request in live]
        logits = rows.logits(sum(len(some) + 1 for some in drafts))
        ids = rows.step(logits, [
            sluice.StepRequest(request.handle, drafts=some, bitmask=request.masks[:len(some) + 1].reshape(-1))
            for request, some in zip(live, drafts)]).ids.tolist()
        counts["steps"] += 1
        counts["drafts"] += sum(map(len, drafts))
        at, left = 0, []
        for request, some in zip(live, drafts):
            given = [token for token in ids[at:at + len(some) + 1] if token >= 0]
            if not given:
                sys.exit(f"request {request.params} of {request.name} has no token after {request.tokens}")
            counts["accepted"] += len(given) - 1
            for draw, token in enumerate(given):
                if not request.matcher.accept(token):
                    sys.exit(f"request {request.params} of {request.name}: token {token} after {request.tokens}")
                if request.rows is not None:
                    request.rows.append((request.masks[draw].copy(), rows.row(logits, at + draw)))
                request.tokens.append(token)
            at += len(some) + 1
            if finish(request, counts, vocab):
                rows.sampler.remove(request.handle)
            else:
                left.append(request)
        live = left
    return counts


TOKENIZER = sluice.Tokenizer.from_file(MODEL / "tokenizer.json")


def finish(request, counts, vocab):
    """Whether it has ended; what has to be right then is checked."""
    has_ended = request.matcher.is_terminated
    if request.is_aborted_at is not None and len(request.tokens) >= request.is_aborted_at and not has_ended:
        counts["aborted"] += 1
    elif has_ended:
        counts["ended"] += 1
        text = TOKENIZER.decode(request.tokens[:-1])
        if not matches(json.loads(text), SCHEMAS[request.name], SCHEMAS[request.name]):
            spelled = b"".join(TOKENIZER.token(token) or b"" for token in request.tokens[:-1])
            sys.exit(f"{text} does not match {request.name}; its tokens are {request.tokens}, as {spelled!r}")
        counts["matching"] += 1
    elif len(request.tokens) >= request.most:
        counts["cut"] += 1
    else:
        return False
    counts["tokens"] += len(request.tokens)
    if request.rows is not None:
        counts["replayed"] += replay(request, vocab)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cpu")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--commit", default=None, help="of this tree, where git is not at hand")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    vocab = len(TOKENIZER) + 64
    try:
        compiler = sluice.GrammarCompiler(TOKENIZER, stop_tokens=[END], vocab=vocab)
        rows = {"cuda": DeviceRows, "cpu": HostRows}[options.backend](vocab, options.slots)
    except sluice.UnavailableError as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    grammars = {name: compiler.compile(json_schema=schema) for name, schema in SCHEMAS.items()}
    begin = time.monotonic()
    counts = run(rows, grammars, vocab, options)
    row = {"bench": "grammar soak", "backend": options.backend, "requests": options.requests, "batch": options.slots,
           **counts, "seconds": round(time.monotonic() - begin, 1)}
    print(row)
    if counts["ended"] < options.requests // 2 or counts["accepted"] == 0 or counts["preemptions"] == 0:
        sys.exit("too little happened")
    if options.json:
        commit = options.commit or subprocess.run(
            ["git", "-C", ROOT, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
            capture_output=True, text=True, check=True).stdout.strip()
        options.json.write_text(json.dumps({"env": {"cores": os.cpu_count()}, "commit": commit, "rows": [row]}, indent=1)
                                + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
