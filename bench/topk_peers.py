#!/usr/bin/env python3
"""Times topk of scores on a GPU against peers, in one process, by graph replay.

    python3 bench/topk_peers.py [--columns N]... [--batch B]... [--k K] [--json FILE]
        [--flashinfer-module SO] [--sglang-module SO] [--commit NAME]

Hot, as in decoding: the scores lie in L2 where they fit, and calls take turns at up to four copies
of them; next to one read of them in the same run. Outputs are allocated before; torch.topk makes its
own. Then every peer on the fifteen distributions of score_rows.py. A row is wrong when its scores
are not the k largest; another set has the same scores at other indices than the total order
(ties to the smaller index), which only Sluice and FlashInfer with tie_break promise.

The modules are FlashInfer's topk and SGLang's deepseek_v4/topk_v2, compiled from the sources of
their packages and exported by tvm_ffi; its functions are called as the packages call them.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

try:
    import torch
    from cuda_graphs import MOST_BLOCKS, call_us, processors, read_kernel
    from cuda_peers import commit_of_sources, environment, write_json
    from score_rows import SCORES, first_k, make_scores
except ImportError as error:
    sys.exit(f"topk_peers: {error.name} is missing; pip install torch numpy")

import sluice
from sluice.tensors import TopkTensors

COLUMNS = (8192, 32768, 65536, 131072, 262144, 524288)
BATCHES = (1, 16, 64, 128)
DISTINCT = 8        # rows beyond are copies
HOT_BYTES = 30 << 20
SHAPE_OF_ALL = 131072, (1, 64)  # columns and rows of the fifteen distributions


@dataclass(frozen=True)
class Peer:
    name: str
    make: callable  # of (rows, columns, k): a call from scores to indices
    serves: callable = lambda rows, columns, k: True


def ours(rows, columns, k):
    out = TopkTensors(torch.empty((rows, k), dtype=torch.int32, device="cuda"))
    return lambda scores: sluice.topk(scores, k, out=out).indices


PEERS = [Peer("sluice", ours),
         Peer("torch", lambda rows, columns, k:
              lambda scores: torch.topk(scores, k, sorted=False).indices)]


def load_flashinfer(module):
    """As flashinfer.top_k calls them; in a graph it takes cub below 128 rows or from 32768 on."""
    def radix(deterministic, tie_break):
        def make(rows, columns, k):
            indices = torch.empty((rows, k), dtype=torch.int32, device="cuda")
            values = torch.empty((rows, k), device="cuda")
            states = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")

            def call(scores):
                module.radix_topk(scores, indices, values, states, k, False, deterministic,
                                  tie_break, False)
                return indices
            return call
        return make

    def cub(rows, columns, k):
        indices = torch.empty((rows, k), dtype=torch.int64, device="cuda")
        values = torch.empty((rows, k), device="cuda")
        some = torch.empty((rows, columns), device="cuda")
        size = module.cub_topk_workspace_size(some, k, 0)
        workspace = torch.empty(max(int(size), 1), dtype=torch.uint8, device="cuda")

        def call(scores):
            module.cub_topk(scores, indices, values, workspace, k, 0)
            return indices
        return call

    def clusters(rows, columns, k):
        indices = torch.empty((rows, k), dtype=torch.int32, device="cuda")
        values = torch.empty((rows, k), device="cuda")
        count = 8 if rows <= 32 else 4 if rows < 128 else 2 if rows < 256 else 1
        overflow = torch.empty((rows, 4 * (columns // count) * count), dtype=torch.int32,
                               device="cuda")
        shared = torch.cuda.get_device_properties(0).shared_memory_per_block_optin // 2
        cached = (shared - (k + 5 + 3 * 256 + 8) * 4 - 1024) // 16

        def call(scores):
            module.fast_topk_clusters_exact(scores, indices, values, None, overflow, k, cached,
                                            count, False)
            return indices
        return call

    PEERS.extend([Peer("flashinfer-cub", cub), Peer("flashinfer-radix", radix(False, 0)),
                  Peer("flashinfer-deterministic", radix(True, 0)),
                  Peer("flashinfer-tie-break", radix(True, 1)),
                  Peer("flashinfer-clusters", clusters)])


def load_sglang(module):
    def make(rows, columns, k):
        indices = torch.empty((rows, k), dtype=torch.int32, device="cuda")
        lengths = torch.full((rows,), columns, dtype=torch.int32, device="cuda")
        plan = torch.empty((rows + 1, 2), dtype=torch.int32, device="cuda")
        module.topk_plan(lengths, plan, -1)

        def call(scores):
            module.topk_transform_paged(scores, lengths, None, indices, 64, plan, None)
            return indices
        return call

    PEERS.append(Peer("sglang-v2", make, lambda rows, columns, k: k <= 2048))


def load_peers(options):
    """Fills PEERS; yields why one is left out."""
    for name, path, load in (("FlashInfer", options.flashinfer_module, load_flashinfer),
                             ("SGLang", options.sglang_module, load_sglang)):
        if path is None:
            yield f"without {name}: --{name.lower()}-module names its module"
            continue
        try:
            import tvm_ffi

            load(tvm_ffi.load_module(str(Path(path).resolve())))
        except (ImportError, RuntimeError, OSError) as error:
            yield f"without {name}: {error}"


def copies_of(name, rows, columns):
    scores = make_scores(name, min(rows, DISTINCT), columns)
    scores = scores[torch.arange(rows, device="cuda") % DISTINCT].contiguous()
    count = max(1, min(4, HOT_BYTES // (scores.numel() * 4)))
    return [scores] + [scores.clone() for _ in range(count - 1)]


def read_floor_us(copies):
    rows, columns = copies[0].shape
    largest = torch.empty((rows, MOST_BLOCKS), device="cuda")
    most = max(1, 8 * processors() // rows)
    shapes = [(blocks, block, warps) for blocks in (1, 4, 8, 16, 32, 64, MOST_BLOCKS)
              for block, warps in ((2048, 4), (4096, 8), (8192, 16))
              if blocks <= most and (blocks - 1) * block < columns]

    def time(blocks, block, warps):
        return call_us(lambda i: read_kernel[(blocks, rows)](
            copies[i % len(copies)], largest, columns, BLOCK=block, num_warps=warps))

    return min(time(*shape) for shape in shapes)


def measure(peer, copies, k, expected):
    rows, columns = copies[0].shape
    scores = copies[0]
    call = peer.make(rows, columns, k)
    found = [call(scores).long().sort(dim=1).values.clone() for _ in range(2)]
    indices = found[0].clamp(0, columns - 1)
    is_wrong = (found[0] != indices).any(dim=1) | (indices.diff(dim=1) == 0).any(dim=1)
    values = scores.gather(1, indices).sort(dim=1).values
    is_wrong |= (values != scores.gather(1, expected).sort(dim=1).values).any(dim=1)
    is_other = (indices != expected).any(dim=1) & ~is_wrong
    us = call_us(lambda i: call(copies[i % len(copies)]))
    return {"us": us, "wrong_rows": int(is_wrong.sum()), "other_sets": int(is_other.sum()),
            "rows_checked": rows, "repeats": bool(torch.equal(*found))}


def run(options, out):
    report, table = environment(options.commit or commit_of_sources()), []
    shapes = [("normal", columns, rows) for columns in options.columns or COLUMNS
              for rows in options.batch or BATCHES]
    if not options.columns:
        shapes += [(name, SHAPE_OF_ALL[0], rows) for rows in SHAPE_OF_ALL[1] for name in SCORES
                   if name != "normal"]
    for name, columns, rows in shapes:
        copies = copies_of(name, rows, columns)
        expected = first_k(copies[0], options.k)
        floor, ours_us = read_floor_us(copies), None
        for peer in PEERS:
            if not peer.serves(rows, columns, options.k):
                continue
            try:
                result = measure(peer, copies, options.k, expected)
            except Exception as error:  # a peer's trouble is a line of the table
                if peer.name == "sluice":
                    raise
                print(f"{name} N={columns} B={rows} {peer.name}: {error}", file=out, flush=True)
                torch.cuda.synchronize()
                continue
            us = result.pop("us")
            ours_us = ours_us or us
            print(f"{name:11} N={columns:<7} B={rows:<4} {peer.name:25} {us:8.2f} us "
                  f"{us / ours_us:6.2f}x ours {us / floor:6.2f}x floor  wrong "
                  f"{result['wrong_rows']:3} other {result['other_sets']:3} of {rows:<4}"
                  f"{'repeats' if result['repeats'] else 'differs'}", file=out, flush=True)
            table.append({"bench": "topk-peers", "task": f"topk-{options.k}", "backend": "cuda",
                          "dtype": "float32", "n": columns, "batch": rows, "distribution": name,
                          "ns": round(1e3 * ours_us), "floor_ns": round(1e3 * floor),
                          "peer": peer.name, "peer_ns": round(1e3 * us),
                          "ratio": round(us / ours_us, 2), "floors": round(us / floor, 2),
                          "exact": result["wrong_rows"] == 0, **result})
        if options.json:
            write_json(options.json, report, table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--columns", type=int, action="append")
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--flashinfer-module", help="its topk as a shared object")
    parser.add_argument("--sglang-module", help="its topk_v2 as a shared object")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--commit", default=None, help="of the sources that were built")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("topk_peers: torch sees no CUDA device")
    for reason in load_peers(options):
        print(f"topk_peers: {reason}", file=sys.stderr)
    run(options, sys.stderr)


if __name__ == "__main__":
    main()
