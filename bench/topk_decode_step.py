#!/usr/bin/env python3
"""What topk takes of a decode step of sparse attention, on a GPU: indexer, topk, attention.

    python3 bench/topk_decode_step.py [--context N]... [--rows R]... [--json FILE]
        [--flashinfer-module SO]

One layer and one request, with random weights. The indexer scores every token of the context
(bfloat16, 64 heads of 128, ReLU, weighted sum, in one kernel) for 1, 2 or 4 rows, a token and its
drafts; topk keeps 2048; the attention gathers their latents (576 bfloat16) for 128 heads. Queries,
keys and hints are those of indexer_trace.py, so the hint is worth as much as in those; the threshold
that is carried is the one that the same scores have left. Each step is a CUDA graph; the share is
what the step loses when the indices are there already. A token's time is that of the layer over the
rows: all drafts accepted.
"""

import argparse
import math
import sys

try:
    import torch
    import triton
    import triton.language as tl
    from cuda_graphs import call_us
    from cuda_peers import commit_of_sources, environment, write_json
    from indexer_trace import DIM, HEADS, layers_of
    from score_rows import first_k
except ImportError as error:
    sys.exit(f"topk_decode_step: {error.name} is missing; pip install torch numpy")

import sluice
from sluice.tensors import TopkTensors, plan_topk

CONTEXTS, ROWS, K = (16384, 32768, 65536, 131072), (1, 2, 4), 2048
LATENT, VALUE, ATTENTION_HEADS = 576, 512, 128
LAYER = 4  # of the trace: its overlap is that of most layers


@triton.jit
def indexer_kernel(queries, keys, weights, scores, tokens, HEADS: tl.constexpr, DIM: tl.constexpr,
                   BLOCK: tl.constexpr):
    """Row r does not see the drafts after it: they score -inf."""
    row = tl.program_id(1)
    seen = tokens - tl.num_programs(1) + row + 1
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    head, dim = tl.arange(0, HEADS), tl.arange(0, DIM)
    key = tl.load(keys + at[:, None] * DIM + dim[None, :], mask=at[:, None] < tokens, other=0.0)
    query = tl.load(queries + row * HEADS * DIM + head[None, :] * DIM + dim[:, None])
    product = tl.maximum(tl.dot(key, query), 0.0)
    weight = tl.load(weights + row * HEADS + head)
    score = tl.where(at < seen, tl.sum(product * weight[None, :], axis=1), -float("inf"))
    tl.store(scores + row.to(tl.int64) * tokens + at, score, mask=at < tokens)


class Step:
    """A decode step on buffers of its own."""

    def __init__(self, layer, context, rows):
        def empty(*size, dtype=torch.int32):
            return torch.empty(size, dtype=dtype, device="cuda")

        self.rows = rows
        self.tokens = context + rows + 1
        self.keys = layer.keys[:self.tokens].contiguous()
        self.scores = empty(rows, self.tokens, dtype=torch.float32)
        self.indices = empty(rows, K)
        self.out = TopkTensors(self.indices)
        self.length = torch.full((1,), self.tokens, dtype=torch.int32, device="cuda")
        self.latents = torch.randn((self.tokens, LATENT), device="cuda").bfloat16()
        self.heads = torch.randn((rows, ATTENTION_HEADS, LATENT), device="cuda").bfloat16()
        self.layer = layer
        self.set_step(0)
        self.score()  # the step before, for the hint
        self.hint = first_k(self.scores[:1, :context + 1], K).int()
        self.set_step(1)
        self.score()
        self.expected = first_k(self.scores, K)
        self.hinted_plan = plan_topk(self.scores, K)._replace(guess="hint")
        self.thresholds = empty(rows, dtype=torch.float32).fill_(torch.nan)

    def set_step(self, first):
        self.queries = self.layer.queries[first:first + self.rows].contiguous()
        self.weights = self.layer.weights[first:first + self.rows].contiguous()

    def score(self):
        grid = (triton.cdiv(self.tokens, 128), self.rows)
        indexer_kernel[grid](self.queries, self.keys, self.weights, self.scores, self.tokens,
                             HEADS=HEADS, DIM=DIM, BLOCK=128, num_warps=8)

    def attend(self, indices):
        latents = self.latents.index_select(0, indices.view(-1)).view(self.rows, K, LATENT)
        shares = (self.heads @ latents.mT).mul_(1 / math.sqrt(LATENT)).softmax(dim=-1)
        return shares @ latents[..., :VALUE]


def variants(step, flashinfer):
    """name: the call that gives indices"""
    found = {
        "torch": lambda: torch.topk(step.scores, K, sorted=False).indices,
        "sluice-hint": lambda: sluice.topk(
            step.scores, K, lengths=step.length, next_n=step.rows, hint=step.hint, hint_shift=1,
            plan=step.hinted_plan, out=step.out).indices,
        "sluice-threshold": lambda: sluice.topk(
            step.scores, K, lengths=step.length, next_n=step.rows, thresholds=step.thresholds,
            out=step.out).indices,
        "sluice": lambda: sluice.topk(step.scores, K, lengths=step.length, next_n=step.rows,
                                      out=step.out).indices,
    }
    if flashinfer is not None:
        states = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

        def by_flashinfer():
            flashinfer.radix_topk(step.scores, step.indices, None, states, K, False, False, 0,
                                  False)
            return step.indices

        found = {"flashinfer-radix": by_flashinfer, **found}
    return found


def measure(step, topk):
    def whole(_):
        step.score()
        step.attend(topk())

    def without(_):
        step.score()
        step.attend(known)

    step.score()
    known = topk().clone()
    is_exact = bool(torch.equal(known.long().sort(dim=1).values, step.expected))
    rest = call_us(without, 4, 20)
    return {"us": call_us(whole, 4, 20), "rest_us": rest, "exact": is_exact}


def run(options, out):
    flashinfer = None
    if options.flashinfer_module:
        import tvm_ffi

        flashinfer = tvm_ffi.load_module(options.flashinfer_module)
    report, table = environment(options.commit or commit_of_sources()), []
    for context in options.context or CONTEXTS:
        *_, layer = layers_of(context, 8, LAYER + 1)
        for rows in options.rows or ROWS:
            step = Step(layer, context, rows)
            for name, topk in variants(step, flashinfer).items():
                result = measure(step, topk)
                us, rest = result["us"], result["rest_us"]
                share = 1 - rest / us
                print(f"N={context:<7} rows {rows} {name:17} step {us:7.2f} us, topk "
                      f"{us - rest:6.2f} us, {100 * share:4.1f} %, a token {us / rows:7.2f} us "
                      f"exact {result['exact']}", file=out, flush=True)
                table.append({"bench": "topk-decode-step", "task": f"topk-{K}", "backend": "cuda",
                              "dtype": "float32", "n": context, "batch": rows, "peer": name,
                              "ns": round(1e3 * us), "rest_ns": round(1e3 * rest),
                              "topk_ns": round(1e3 * (us - rest)), "share": round(share, 3),
                              "token_ns": round(1e3 * us / rows), "exact": result["exact"]})
        if options.json:
            write_json(options.json, report, table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--context", type=int, action="append")
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--flashinfer-module", help="its topk as a shared object")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("topk_decode_step: torch sees no CUDA device")
    run(options, sys.stderr)


if __name__ == "__main__":
    main()
