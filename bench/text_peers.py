"""Hugging Face tokenizers against Sluice, on one vocabulary and corpus that are made up here.

    python3 text_peers.py SLUICE [--json FILE]    SLUICE is the command

Trains a tokenizer in the style of Llama 3 with 60,000 tokens, times `tokenizers` (DecodeStream and
encode, one thread, called from Python, as serving systems call them) and `sluice bench detok`, and
prints the ratios. Encoding is timed as well in the style of Llama 2, which has no words: the whole
text is one piece (task `encode, one piece`, with 32,000 tokens).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "fixtures"))

import make_tokenizers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.decoders import DecodeStream  # noqa: E402


def median_ns(units, call, runs=5):
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / units


def bench(sluice, path, text_path, rows_path):
    subprocess.run([sluice, "bench", "detok", path, text_path, "--json", rows_path], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads(Path(rows_path).read_text(encoding="utf-8"))


def beside(row, peer_ns):
    """A row with the time of tokenizers."""
    return {**row, "peer": "tokenizers", "peer_ns": peer_ns, "ratio": peer_ns / row["ns"]}


def one_piece(sluice, folder, text, text_path, rows_path):
    """The rows of encoding without words: Sluice's, and with the peer's time."""
    path = os.path.join(folder, "one_piece.json")
    made = make_tokenizers.train("llama2", 32_000, make_tokenizers.corpus(10, 1_200_000, 60_000))
    made.save(path, pretty=False)
    tokenizer = Tokenizer.from_file(path)
    peer = median_ns(len(text.encode()), lambda: tokenizer.encode(text), runs=3)
    row = next(row for row in bench(sluice, path, text_path, rows_path)["rows"]
               if row["task"] == "encode" and "peer" not in row)
    row["task"] = "encode, one piece"
    return [row, beside(row, peer)]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("sluice")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, text_path, rows_path = (os.path.join(folder, n) for n in ("t.json", "t.txt", "r.json"))
        made = make_tokenizers.train("llama3", 60_000, make_tokenizers.corpus(10, 1_200_000, 60_000))
        made.save(path, pretty=False)
        text = "\n".join(make_tokenizers.corpus(11, 1_000_000, 60_000))
        Path(text_path).write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_file(path)
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:100_000]

        def decode():
            stream = DecodeStream(skip_special_tokens=True)
            for id in ids:
                stream.step(tokenizer, id)

        peers = {
            "load": median_ns(os.path.getsize(path), lambda: Tokenizer.from_file(path)),
            "encode": median_ns(len(text.encode()), lambda: tokenizer.encode(text), runs=3),
            "detokenise": median_ns(len(ids), decode, runs=3),
        }
        result = bench(options.sluice, path, text_path, rows_path)
        others = one_piece(options.sluice, folder, text, text_path, rows_path)
    rows = []
    for row in result["rows"]:
        rows.append(row)
        if row["task"] in peers:
            rows.append(beside(row, peers[row["task"]]))
    result["rows"] = rows = rows + others
    for row in rows:
        if "peer" in row:
            print(f"{row['task']:18} {row['n']:8}  {row['ns']:8.2f} ns  {row['peer']}: "
                  f"{row['peer_ns']:8.1f} ns  x{row['ratio']:.1f}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
