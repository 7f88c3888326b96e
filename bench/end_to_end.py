#!/usr/bin/env python3
"""Decodes with random weights from end to end, with one sampler after the other at the end of the layers.

    python3 bench/end_to_end.py [--model NAME]... [--batch N]... [--task NAME]... [--tail NAME]...
        [--context N] [--entropy NATS] [--rounds N] [--steps N] [--device cuda|cpu] [--json FILE]
        [--vllm DIR] [--flashinfer-modules DIR] [--commit NAME]

A step is one CUDA graph: the layers (decode_model.py), the last norm, the head by cuBLAS in
bfloat16, the sampler, and the embedding of what it chose; the certified head takes the place of
head and sampler; requests of a DeviceSampler are a second graph after the first. `skipped` feeds
set ids instead of sampling, and still computes the logits; `no-head` does not. Times are of
replays, medians of rounds in which all tails take turns; the gap is that to `skipped` in the same
round, and the tail that to `no-head`, medians too: the chip's clock moves from round to round. The
head's weights are scaled until the softmax has about --entropy nats.

After its rounds a tail's last tokens are compared for up to 16 rows: Sluice's and argmax with the
reference for the same logits (of the certified head: of the dense head's), others' with the exact
set. On the CPU nothing is captured, and peers are left out.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

try:
    import torch
    from decode_model import SHAPES, Decoder, Plain, mean_entropy
    from decode_tails import TASKS, Batch, load_peers, skipped, tails_of, without_head
except ImportError as error:
    sys.exit(f"end_to_end: {error.name} is missing; pip install torch numpy")

import sluice

MODELS = ("8b-128256", "8b-151936", "20b-a3b", "4b")
BATCHES = (1, 8, 32, 128)
CHECKED = 16  # rows


class Clock:
    """Times of work that was enqueued, in microseconds."""

    def __init__(self, device):
        self.is_cuda = device.type == "cuda"

    def read(self):
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, start, stop):
        if not self.is_cuda:
            return 1e6 * (stop - start)
        stop.synchronize()
        return 1e3 * start.elapsed_time(stop)


class Step:
    """A decode step with one tail; what it needs besides the decoder's memory is taken here."""

    def __init__(self, decoder, tail, rows, logits, pool):
        self.tail, self.decoder, self.rows, self.logits = tail, decoder, rows, logits
        self.ids, self.hidden, self.graph = None, None, None
        if logits.device.type == "cpu":
            return
        for _ in range(2):  # what is compiled or kept at first is, before the capture
            self._behind(self._front())
        torch.cuda.synchronize()
        from cuda_graphs import captured

        self.graph = captured(self._front if not tail.captured else
                              lambda: self._behind(self._front()), pool)

    def _front(self):
        self.decoder.advance()
        prepared = self._beside(self.tail.prepare) if self.tail.prepare else None
        self.hidden = self.decoder.hidden(self.rows)
        if self.tail.needs_logits:
            torch.mm(self.hidden, self.decoder.head.T, out=self.logits)
        if prepared is not None:
            torch.cuda.current_stream().wait_stream(prepared)
        return self.hidden

    @staticmethod
    def _beside(work):
        """Enqueues on a stream of its own, a branch of a captured graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()
        return side

    def _behind(self, hidden):
        self.ids = self.tail.draw(hidden, self.logits)
        self.decoder.feed(self.ids)

    def run(self):
        if self.graph is None:
            self._behind(self._front())
            return
        self.graph.replay()
        if not self.tail.captured:
            self._behind(self.hidden)

    def check(self):
        """What is wrong with the tokens of one more step."""
        if self.tail.expected is None:
            return {}
        self.run()
        count = min(self.rows, CHECKED)
        ids = self.ids[:count].cpu().numpy()
        logits = self.logits[:count].float().cpu().numpy()
        wrong = self.tail.expected(self.hidden, logits, ids)
        return {"rows_checked": count, "wrong_rows": wrong, **self.tail.facts(self.hidden)}


def timed(steps, clock, rounds, count):
    """Microseconds a step, one number a round, by name; all take turns in each round."""
    spans = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step.run()
            start = clock.read()
            for _ in range(count):
                step.run()
            spans[name].append((start, clock.read()))
    return {name: [clock.between(*span) / count for span in of_name]
            for name, of_name in spans.items()}


def spread_of_softmax(logits):
    """Means over the rows: nats, and how many tokens have p = 0.9."""
    mass = logits.float().softmax(dim=-1).sort(dim=-1, descending=True).values.cumsum(-1)
    return {"entropy": round(mean_entropy(logits), 2),
            "nucleus": round(float((mass < 0.9).sum(-1).float().mean() + 1), 1)}


def line(row):
    wrong = f"{row['wrong_rows']}/{row['rows_checked']}" if "wrong_rows" in row else "-"
    more = "".join(f" {name} {row[name]}" for name in ("dense_rows", "survivors") if name in row)
    return (f"{row['model']:10} B={row['batch']:<4} {row['task']:9} {row['peer']:24} "
            f"{row['tokens_per_s']:9.0f} tokens/s {row['peer_ns'] / 1e3:9.1f} us  tail "
            f"{row['tail_ns'] / 1e3:8.1f} us  gap {row['gap_percent']:7.2f} % "
            f"(+-{row['spread_percent']:.2f})  wrong {wrong}{more}")


def rows_of(name, options, out):
    """Measures one model; yields a row for each batch, task and tail."""
    device, shape = torch.device(options.device), SHAPES[name]
    ops = Plain
    if device.type == "cuda":
        from decode_kernels import Fused as ops
    batches = options.batch or BATCHES
    began = time.perf_counter()
    decoder = Decoder(shape, max(batches), options.context, device, options.entropy, ops)
    head = None
    if not options.tail or "sluice-certified" in options.tail:
        head = sluice.CertifiedHead(decoder.head, seed=1, threads=sluice.Threads(os.cpu_count()))
    print(f"{name}: made in {time.perf_counter() - began:.1f} s", file=out, flush=True)
    clock = Clock(device)
    for rows in batches:
        logits = torch.empty((rows, shape.vocab), dtype=torch.bfloat16, device=device)
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        ids = decoder.ids[:rows]
        began = time.perf_counter()
        decoder.begin(rows)
        steps = {("", tail.name): Step(decoder, tail, rows, logits, pool)
                 for tail in (without_head(ids), skipped(ids))}
        for task in options.task or TASKS:
            batch = Batch(rows, TASKS[task], decoder.positions[:rows])
            for tail_name, make in tails_of(task, batch, shape, head, decoder.head).items():
                if options.tail and tail_name not in options.tail:
                    continue
                try:
                    steps[task, tail_name] = Step(decoder, make(), rows, logits, pool)
                except Exception as error:  # a peer's trouble is a line of the table
                    if tail_name.startswith("sluice"):
                        raise
                    print(f"{name} B={rows} {task} {tail_name}: {error}", file=out, flush=True)
        made = time.perf_counter() - began
        times = timed(steps, clock, options.rounds, options.steps)
        measured = time.perf_counter() - began - made
        none, full = times["", "no-head"], times["", "skipped"]
        medians = {key: statistics.median(found) for key, found in times.items()}
        steps["", "skipped"].run()
        about = spread_of_softmax(logits)
        head_bytes = decoder.head.numel() * decoder.head.element_size()
        for key, step in steps.items():
            us = medians[key]
            gaps = [100 * (mine / other - 1) for mine, other in zip(times[key], full)]
            yield {"bench": "end-to-end", "model": name, "task": key[0] or "any",
                   "backend": device.type, "dtype": "bfloat16", "vocab": shape.vocab,
                   "batch": rows, "context": options.context, "distribution": "random weights",
                   **about, "ns": round(1e3 * medians.get((key[0], "sluice"), us)),
                   "peer": key[1], "peer_ns": round(1e3 * us),
                   "skipped_ns": round(1e3 * medians["", "skipped"]),
                   "tail_ns": round(1e3 * statistics.median(
                       mine - other for mine, other in zip(times[key], none))),
                   "gap_percent": round(statistics.median(gaps), 2),
                   "spread_percent": round((max(gaps) - min(gaps)) / 2, 2),
                   "tokens_per_s": round(1e6 * rows / us, 1),
                   "layer_bytes": decoder.step_bytes(rows), "head_bytes": head_bytes,
                   **step.check()}
        print(f"{name} B={rows}: {len(steps)} steps made in {made:.1f} s, timed in "
              f"{measured:.1f} s, checked in {time.perf_counter() - began - made - measured:.1f} s",
              file=out, flush=True)
        del steps, step


def report_of(options):
    if options.device == "cuda":
        from cuda_peers import commit_of_sources, environment

        return environment(options.commit or commit_of_sources())
    return {"env": {"device": "cpu", "torch": torch.__version__, "sluice": sluice.__version__},
            "commit": options.commit or "unknown"}


def run(options, out):
    report, rows = report_of(options), []
    attention = contextlib.nullcontext()
    if options.device == "cuda":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        attention = sdpa_kernel(SDPBackend.FLASH_ATTENTION)
    with torch.no_grad(), attention:
        for name in options.model or MODELS:
            for row in rows_of(name, options, out):
                print(line(row), file=out, flush=True)
                rows.append(row)
                if options.json:
                    text = ",\n".join(json.dumps(one) for one in rows)
                    Path(options.json).write_text(
                        json.dumps(report)[:-1] + ', "rows": [\n' + text + "\n]}\n",
                        encoding="utf-8")
            if options.device == "cuda":
                torch.cuda.empty_cache()
    return rows


def parsed(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", action="append", choices=SHAPES)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--tail", action="append", help="of the tails, those of these names")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache")
    parser.add_argument("--entropy", type=float, default=3.0, help="of the softmax, in nats")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="of a round")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--vllm", help="folder with vLLM's source files")
    parser.add_argument("--flashinfer-modules", help="folder with its sampling.so and topk.so")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    return parser.parse_args(arguments)


def main():
    options = parsed()
    if options.device == "cuda":
        if not torch.cuda.is_available():
            sys.exit("end_to_end: torch sees no CUDA device")
        for reason in load_peers(options.vllm, options.flashinfer_modules):
            print(f"end_to_end: {reason}", file=sys.stderr)
    run(options, sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("FLASHINFER_LOGGING_LEVEL", "error")
    main()
