#!/usr/bin/env python3
"""Which head gave the tokens of the built-in model, and what it read: `sluice generate --head`.

    python3 bench/generate_heads.py SLUICE --json FILE

Requests with filters, penalties, bias and masks, each from several prompts, by the
planes of both kinds and by the dense head: the tokens have to be the same. Counts alone, no clock.
"""

import argparse
import json
import os
import platform
import subprocess
import sys

TOKENS = 400
PROMPTS = ["Once upon a time", "It was a dark", "The captain looked at"]
SEEDS = [1]
REQUESTS = {
    "k = 50, p = 0.9": ["--top-k", "50", "--top-p", "0.9"],
    "p = 0.9": ["--top-p", "0.9"],
    "repetition 1.1, k = 50, p = 0.9": ["--repetition-penalty", "1.1", "--top-k", "50",
                                        "--top-p", "0.9"],
    "repetition 1.1, p = 0.9": ["--repetition-penalty", "1.1", "--top-p", "0.9"],
    "repetition 1.3, greedy": ["--repetition-penalty", "1.3", "--temperature", "0"],
    "frequency 0.3, presence 0.3, p = 0.9": ["--frequency-penalty", "0.3", "--presence-penalty",
                                             "0.3", "--top-p", "0.9"],
    "frequency 0.3, whole softmax": ["--frequency-penalty", "0.3"],
    "bias of 3 tokens, k = 50": ["--logit-bias", "17:2.5,300:-100,301:4",
                                 "--top-k", "50"],
    "min-tokens 400, min-p = 0.05": ["--min-tokens", "400", "--min-p", "0.05"],
}


def run(sluice: str, head: str, prompt: str, seed: int, flags: list) -> dict:
    command = [sluice, "generate", prompt, "--seed", str(seed), "--ignore-eos", "--json", "--quiet",
               "--threads", "1", "--max-tokens", str(TOKENS), "--head", head, *flags]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def figures(sluice: str, head: str, name: str, dense: dict) -> dict:
    row = {"bench": "generate_heads", "request": name, "head": head, "tokens": 0, "different": 0,
           "certified": 0, "read_whole": 0, "dense": 0, "survivors": 0, "bytes": 0,
           "dense_bytes": 0}
    for prompt in PROMPTS:
        for seed in SEEDS:
            own = run(sluice, head, prompt, seed, REQUESTS[name])
            for a, b in zip(dense[prompt, seed]["choices"], own["choices"], strict=True):
                row["different"] += sum(x != y for x, y in zip(a["token_ids"], b["token_ids"],
                                                               strict=True))
            statistics = own["statistics"]
            certified = statistics["certified"]
            row["tokens"] += TOKENS
            row["certified"] += certified["rows"]
            row["read_whole"] += certified["rows_read_whole"]
            row["dense"] += sum(statistics["dense_rows"].values())
            row["survivors"] += certified["survivors"]
            row["bytes"] += certified["bytes_read"]
            row["dense_bytes"] += certified["dense_bytes"]
    if row["different"] != 0:
        sys.exit(f"{name}, {head}: {row['different']} tokens are not the dense head's")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    rows = []
    for name in REQUESTS:
        dense = {(prompt, seed): run(arguments.sluice, "dense", prompt, seed, REQUESTS[name])
                 for prompt in PROMPTS for seed in SEEDS}
        for head in ("dither4", "strict"):
            rows.append(figures(arguments.sluice, head, name, dense))
            print(rows[-1], flush=True)
    commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"env": {"machine": platform.machine(), "os": platform.platform(),
                           "processors": os.cpu_count()},
                   "commit": commit, "rows": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
