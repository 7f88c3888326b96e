#!/usr/bin/env python3
"""A model of sharded steps: bytes and latencies, checked against measured steps, then extrapolated.

    shards_model.py bench/results/shards-h200-x2.json [bench/results/shard-parts-h200.json]

Prints the tables of docs/notes/scaling.md: two from the steps of the first file, and from the second one, of what a rank
computes by itself, steps with exchanges. What is not from the files is in ASSUMED, by name.
"""

import json
import sys

# Of top-k 50 with top-p 0.9, by least squares by hand from the file: microseconds.
FIXED = 15.7  # the kernels of a sharded draw, whatever the slice
PER_MILLION = 1.9  # more for a million logits of the slice
BETWEEN = 5.0  # head and draw in one graph, over the sum of both alone
COPIES = 14.0  # of gathered logits into rows, 32 of them
EXCHANGE = 5.1  # of next to nothing, two GPUs
BANDWIDTH = 140e3  # bytes in a microsecond, of megabytes
BYTES = 416

# These were not measured here.
ASSUMED = {
    "hop": 1.0,  # microseconds for each further GPU of a host
    "hosts": 15.0,  # the first other host, and 5 for each after it
    "network": 50e3,  # bytes in a microsecond and GPU between hosts
}


def exchange(ranks, own_bytes):
    latency = EXCHANGE + ASSUMED["hop"] * (min(ranks, 8) - 2)
    hosts = (ranks + 7) // 8
    if hosts > 1:
        latency += ASSUMED["hosts"] + 5 * (hosts - 2)
    bandwidth = BANDWIDTH if hosts == 1 else ASSUMED["network"]
    return latency + (ranks - 1) * own_bytes / bandwidth


def sharded(head, ranks, batch, vocab):
    logits = batch * vocab / ranks / 1e6
    return head / ranks + BETWEEN + FIXED + PER_MILLION * logits + exchange(ranks, batch * BYTES)


def gathered(head, sample, ranks, batch, vocab):
    return (head / ranks + BETWEEN + sample + COPIES * batch / 32 +
            exchange(ranks, 2 * batch * vocab / ranks))


def print_parts(path):
    """Steps of 2 and 4 GPUs: the slowest rank's part, and the exchange of its message."""
    with open(path, encoding="utf-8") as file:
        parts = {(row["task"], row["batch"], row["ranks"]): row["ns"] / 1e3
                 for row in json.load(file)["rows"]}
    kinds = (("certified-greedy", "one-gpu-certified-greedy", 24),
             ("certified-k50-p0.9", "one-gpu-certified-k50-p0.9", 416),
             ("certified-softmax", "one-gpu-certified-softmax", 144),
             ("library-k50-p0.9", "part-library-k50-p0.9", 416))
    print("\n| rows | | one GPU | a rank of two | step | against one GPU | a rank of four | step | "
          "against one GPU |\n|---|---|---|---|---|---|---|---|---|")
    for batch in (1, 8, 32):
        for kind, alone, row_bytes in kinds:
            one = parts[alone, batch, 1]
            line = f"| {batch} | {kind} | {one:.0f} us |"
            for ranks in (2, 4):
                part = parts["part-" + kind, batch, ranks]
                step = part + exchange(ranks, batch * row_bytes)
                line += f" {part:.0f} | {step:.0f} | x {one / step:.2f} |"
            print(line)


def main():
    rows = json.load(open(sys.argv[1], encoding="utf-8"))["rows"]
    steps = {(row["task"], row["batch"], row["ranks"]): row for row in rows if "batch" in row}
    vocab = 128256
    print("| rows | sharded: model | measured | gathered: model | measured |\n|---|---|---|---|---|")
    for batch in (1, 8, 32, 128):
        one = steps["one-gpu-k50-p0.9", batch, 1]
        head, sample = one["head_ns"] / 1e3, one["sample_ns"] / 1e3
        measured = [steps[f"{way}-k50-p0.9", batch, 2]["ns"] / 1e3 for way in ("sharded", "gathered")]
        print(f"| {batch} | {sharded(head, 2, batch, vocab):.0f} us | {measured[0]:.0f} | "
              f"{gathered(head, sample, 2, batch, vocab):.0f} | {measured[1]:.0f} |")
    one = steps["one-gpu-k50-p0.9", 32, 1]
    head, sample = one["head_ns"] / 1e3, one["sample_ns"] / 1e3
    print("\n| GPUs | head | sharded | against one GPU | gathered | against sharded |\n"
          "|---|---|---|---|---|---|")
    for ranks in (4, 8, 16, 32, 64):
        mine, theirs = sharded(head, ranks, 32, vocab), gathered(head, sample, ranks, 32, vocab)
        print(f"| {ranks} | {head / ranks:.0f} us | {mine:.0f} | {one['ns'] / 1e3 / mine:.1f} | "
              f"{theirs:.0f} | {theirs / mine:.1f} |")
    if len(sys.argv) > 2:
        print_parts(sys.argv[2])


if __name__ == "__main__":
    main()
