#!/usr/bin/env python3
"""What each part of topk is worth, on a GPU: no guess, a sample, a threshold that is carried, hints
that overlap more and less, and the sample or the secant of counts after them.

    python3 bench/topk_ablation.py [--columns N]... [--batch B]... [--k K] [--json FILE]

Scores are N(0, 1). A hint of an overlap is made in two ways. `made` has that share of the true answer
and any indices of the row. `step` is the whole answer of a step before: scores with a correlation
such that this share of their answer stays, so the others still have large scores and the mean of the
hinted scores is higher. bench/topk_traces.py takes the steps of a model. Times are of graph replays
(cuda_graphs.call_us), rounds are those of the refine phase, and every answer is compared.
"""

import argparse
import sys

try:
    import torch
    from cuda_graphs import call_us
    from cuda_peers import commit_of_sources, environment, write_json
    from score_rows import first_k, make_scores
except ImportError as error:
    sys.exit(f"topk_ablation: {error.name} is missing; pip install torch numpy")

import sluice
from sluice.tensors import TopkTensors, plan_topk

OVERLAPS = (0, 1.5, 44, 90, 100)  # percent
STEP_OVERLAPS = (1.5, 44, 90)
COLUMNS, BATCHES = (32768, 70000, 131072), (1, 16, 64)


def hint_of(expected, columns, percent):
    """Random indices, of which so many percent are those of the answer."""
    hint = torch.randint(columns, expected.shape, device="cuda")
    is_hit = torch.rand(expected.shape, device="cuda") < percent / 100
    return hint.where(~is_hit, expected).int()


def step_before(scores, correlation, noise):
    """Scores of a step before, N(0, 1) as these are."""
    return correlation * scores + (1.0 - correlation**2) ** 0.5 * noise


def hint_of_step(scores, k, expected, percent):
    """The answer of a step before of which `percent` are in this answer, and how many are."""
    noise, low, high = torch.randn_like(scores), 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        hint = first_k(step_before(scores, middle, noise), k)
        share = torch.stack([torch.isin(a, b).float().mean() for a, b in zip(hint, expected)]).mean().item()
        low, high = (middle, high) if share < percent / 100 else (low, middle)
    return hint.int(), share


def variants(scores, k, expected):
    """name: (plan, hint)"""
    plan = plan_topk(scores, k)
    yield "definition", (plan._replace(capacity=0), None)
    yield "sample, one block a row", (plan._replace(blocks=1, threads=1024), None)
    yield "sample", (plan, None)
    yield "threshold of the call before", (plan._replace(guess="threshold"), None)
    for guess in ("hint", "secant"):
        for percent in OVERLAPS:
            yield f"{guess}, made, {percent} %", (plan._replace(guess=guess),
                                                  hint_of(expected, scores.shape[1], percent))
    for percent in STEP_OVERLAPS:
        hint, share = hint_of_step(scores, k, expected, percent)
        for guess in ("hint", "secant"):
            yield f"{guess}, step, {100 * share:.1f} %", (plan._replace(guess=guess), hint)


def measure(scores, k, plan, hint, expected):
    rows = len(scores)
    out = TopkTensors(torch.empty((rows, k), dtype=torch.int32, device="cuda"),
                      work=torch.empty((rows, 2), dtype=torch.int32, device="cuda"))
    thresholds = None
    if plan.guess == "threshold":
        thresholds = torch.full((rows,), torch.nan, device="cuda")

    def call(_=0):
        sluice.topk(scores, k, hint=hint, thresholds=thresholds, plan=plan, out=out)

    call()
    wrong = int((out.indices.long() != expected).any(dim=1).sum())
    work = out.work.view(torch.uint8)
    return {"us": call_us(call), "wrong_rows": wrong, "reads": int(work[:, 1].max()),
            "mean_reads": round(work[:, 1].float().mean().item(), 3),
            "rounds": int(work[:, 2].max()), "candidates": int(out.work[:, 1].max())}


def run(options, out):
    report, table = environment(options.commit or commit_of_sources()), []
    for columns in options.columns or COLUMNS:
        for rows in options.batch or BATCHES:
            scores = make_scores("normal", rows, columns)
            expected = first_k(scores, options.k)
            base = call_us(lambda _: torch.topk(scores, options.k, sorted=False))
            found = {"torch": {"us": base, "wrong_rows": 0}}
            for name, (plan, hint) in variants(scores, options.k, expected):
                found[name] = measure(scores, options.k, plan, hint, expected)
            for name, result in found.items():
                us = result.pop("us")
                print(f"N={columns:<7} B={rows:<3} {name:28} {us:8.2f} us {base / us:5.2f}x torch  "
                      f"{result}", file=out, flush=True)
                table.append({"bench": "topk-ablation", "task": f"topk-{options.k}",
                              "backend": "cuda", "dtype": "float32", "n": columns, "batch": rows,
                              "distribution": "normal", "variant": name, "ns": round(1e3 * us),
                              "torch_ns": round(1e3 * base), "exact": result["wrong_rows"] == 0,
                              **result})
    if options.json:
        write_json(options.json, report, table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--columns", type=int, action="append")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("topk_ablation: torch sees no CUDA device")
    run(options, sys.stderr)


if __name__ == "__main__":
    main()
