#!/usr/bin/env python3
"""How much of one step's topk is in the next one's, and what a hint is worth then, on a GPU.

    python3 bench/topk_traces.py [--context N]... [--layers L] [--steps S] [--k K] [--json FILE]

Scores of indexer_trace.py, which has no parameter for overlap. Raw: indices that two consecutive
answers share, of k; shifted: that the present one shares with the previous one moved on by a token,
as absolute positions that slide with the query would. Times by graph replay of the last step, and of
16 consecutive steps as 16 rows, of the last two by turns where a threshold is carried; reads are
those of the verify phase, over all steps.
"""

import argparse
import os
import sys
from collections import Counter

try:
    import numpy
    import torch
    from cuda_graphs import call_us
    from cuda_peers import commit_of_sources, environment, write_json
    from indexer_trace import layers_of, scores_of
    from score_rows import first_k
except ImportError as error:
    sys.exit(f"topk_traces: {error.name} is missing; pip install torch numpy")

import sluice
from sluice.tensors import TopkTensors, plan_topk

ROWS = (1, 16)
BINS = 10
# How far a hint is moved, and the plan's guess.
GUESSES = {"sample": (None, None), "hint": (0, "hint"), "hint-shifted": (1, "hint"),
           "secant": (0, "secant"), "secant-shifted": (1, "secant")}
CARRIED = "threshold"  # a float a row, from step to step


def outputs(rows, k):
    def empty(*size, dtype=torch.int32):
        return torch.empty(size, dtype=dtype, device="cuda")

    return TopkTensors(empty(rows, k), statuses=empty(rows, dtype=torch.uint8), work=empty(rows, 2))


def call_of(scores, lengths, k, guess, hint):
    """(the call, its outputs)"""
    out, keywords = outputs(len(scores), k), {}
    shift, name = GUESSES[guess]
    if shift is not None:
        keywords = {"hint": hint, "hint_shift": shift,
                    "plan": plan_topk(scores, k)._replace(guess=name)}

    def call(_=0):
        sluice.topk(scores, k, lengths=lengths, out=out, **keywords)

    return call, out


def carried(scores, lengths, k, expected, rows):
    """The last two steps of `rows` rows by turns, each with the threshold that the other left."""
    thresholds = torch.full((rows,), torch.nan, device="cuda")
    out = outputs(rows, k)
    steps = [(scores[-rows - back:len(scores) - back], lengths[-rows - back:len(scores) - back])
             for back in (1, 0)]

    def call(turn=0):
        part, seen = steps[turn % 2]
        sluice.topk(part, k, lengths=seen, thresholds=thresholds, out=out)

    time = call_us(call)
    call(1)
    if not torch.equal(out.indices.long(), expected[-rows:]):
        raise RuntimeError(f"{CARRIED} is wrong")
    return time


def carried_reads(scores, lengths, k, expected):
    """Of one row that goes from step to step, from the second on."""
    thresholds = torch.full((1,), torch.nan, device="cuda")
    reads = Counter()
    for step in range(len(scores)):
        out = outputs(1, k)
        sluice.topk(scores[step:step + 1], k, lengths=lengths[step:step + 1],
                    thresholds=thresholds, out=out)
        if not torch.equal(out.indices.long(), expected[step:step + 1]):
            raise RuntimeError(f"{CARRIED} is wrong")
        if step > 0:
            reads[int(out.work.view(torch.uint8)[0, 1])] += 1
    return {str(count): rows for count, rows in sorted(reads.items())}


def shared(a, b):
    """Of each row, how many indices of `a` are in `b`, by sorting both."""
    both = torch.cat([a, b], dim=1).sort(dim=1).values
    return (both.diff(dim=1) == 0).sum(dim=1).float() / a.shape[1]


def histogram(overlaps):
    return torch.histc(overlaps, BINS, 0, 1).int().tolist()


def study(layer, index, context, options):
    steps, k = options.steps, options.k
    scores = torch.full((steps, context + steps), -torch.inf, device="cuda")
    for step in range(steps):
        scores[step, :context + step + 1] = scores_of(layer, step, context)
    lengths = torch.arange(context + 1, context + steps + 1, dtype=torch.int32, device="cuda")
    expected = first_k(scores, k)
    raw, moved = (shared(expected[1:], expected[:-1] + by) for by in (0, 1))
    if options.write_steps:  # what all of them see
        path = os.path.join(options.write_steps, f"steps-{context}-{index}.npy")
        numpy.save(path, scores[:, :context + 1].cpu().numpy())
    result = {"overlap_raw": round(raw.mean().item(), 4),
              "overlap_shifted": round(moved.mean().item(), 4),
              "histogram_raw": histogram(raw), "histogram_shifted": histogram(moved)}
    hints = expected[:-1].int()
    for rows in ROWS:
        part, seen, hint = scores[-rows:], lengths[-rows:], hints[-rows:].contiguous()
        for guess in GUESSES:
            call, out = call_of(part, seen, k, guess, hint)
            call()
            if not torch.equal(out.indices.long(), expected[-rows:]):
                raise RuntimeError(f"{guess} is wrong")
            result[f"{guess}_{rows}_ns"] = round(1e3 * call_us(call))
        result[f"{CARRIED}_{rows}_ns"] = round(1e3 * carried(scores, lengths, k, expected, rows))
        result[f"torch_{rows}_ns"] = round(1e3 * call_us(
            lambda _, part=part: torch.topk(part, k, sorted=False)))
    for guess in GUESSES:
        call, out = call_of(scores[1:], lengths[1:], k, guess, hints)
        call()
        if not torch.equal(out.indices.long(), expected[1:]):
            raise RuntimeError(f"{guess} is wrong")
        work = out.work.view(torch.uint8)
        for column, name in ((1, "reads"), (2, "rounds")):
            counts = Counter(work[:, column].tolist())
            result[f"{guess}_{name}"] = {str(count): rows for count, rows in sorted(counts.items())}
    result[f"{CARRIED}_reads"] = carried_reads(scores, lengths, k, expected)
    return result


def run(options, out):
    report, table = environment(options.commit or commit_of_sources()), []
    for context in options.context or (65536, 131072):
        for index, layer in enumerate(layers_of(context, options.steps, options.layers)):
            result = study(layer, index, context, options)
            print(f"N={context} layer {index} raw {result['overlap_raw']:.3f} shifted "
                  f"{result['overlap_shifted']:.3f} us " + " ".join(
                      f"{name[:-3]} {value / 1e3:.2f}" for name, value in result.items()
                      if name.endswith("_ns")) + " reads " + " ".join(
                      f"{guess} {result[guess + '_reads']}" for guess in (*GUESSES, CARRIED)),
                  file=out, flush=True)
            table.append({"bench": "topk-traces", "task": f"topk-{options.k}", "backend": "cuda",
                          "dtype": "float32", "n": context, "layer": index,
                          "steps": options.steps, "exact": True, **result})
        if options.json:
            write_json(options.json, report, table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--context", type=int, action="append")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=65)
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--write-steps", metavar="FOLDER",
                        help="also write the scores, a file a layer, for sluice bench topk")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("topk_traces: torch sees no CUDA device")
    run(options, sys.stderr)


if __name__ == "__main__":
    main()
