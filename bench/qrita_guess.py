#!/usr/bin/env python3
"""How many logits each guess of a threshold for top-p lets through, and whether the nucleus is among them.

    python3 bench/qrita_guess.py SLUICE [--vllm FOLDER] [--json FILE] [--quick]    needs numpy

`paper` is the method of Qrita's paper as vLLM has it: a table of 200 deviations, taken at p * 200, less a quarter. The
table is read from an installed vLLM, or from the folder that holds its package `vllm`; nothing of vLLM runs. Without
one the rows of `paper` are left out. `quantile` is a formula of this project that comes within 0.08 deviations of that
table from p = 0.05 to 0.95, less the same quarter. `formula` is the guess of src/research/qrita/truncation.cuh, without
the bound by its room. Mean and deviation are those of the whole row.
"""

import argparse
import ast
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import NormalDist

try:
    import numpy as np
except ImportError:
    sys.exit("qrita_guess: no numpy; pip install numpy")

TABLE_FILE = "v1/sample/ops/topk_topp_triton.py"
TABLE_NAME = "_NORMAL_CDF_TO_SIGMA_TABLE"
SHARES = (0.5, 0.7, 0.9, 0.95)
LESS = 0.25  # of every guess, as a margin
# The scale of a normal sample and its largest value, fitted to the table.
SCALE, MOST = 2.55, 3.66
NORMAL = NormalDist()


def table_of(folder):
    """The deviations in vLLM's file, or None where there is no vLLM."""
    if folder is not None:
        path = Path(folder) / "vllm" / TABLE_FILE
    else:
        spec = importlib.util.find_spec("vllm")
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin).parent / TABLE_FILE
    if not path.is_file():
        return None
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == TABLE_NAME:
            return ast.literal_eval(node.value)
    return None


def quantile(top_p):
    """Where the softmax of SCALE * N(0, 1), cut at MOST, has the mass `top_p` above."""
    return SCALE + NORMAL.inv_cdf(NORMAL.cdf(MOST - SCALE) * (1.0 - top_p))


def guesses(table):
    """Deviations above the mean as a function of p, by name; the margin is not yet taken off."""
    found = {"quantile": quantile, "formula": lambda top_p: 1.0 - NORMAL.inv_cdf(top_p)}
    if table is not None:
        found = {"paper": lambda top_p: table[min(int(top_p * 200), len(table) - 1)], **found}
    return found


def outliers(logits, top_p, sigma):
    """Of rows: how many logits reach the threshold, and the share of rows with a nucleus among them."""
    sigma -= LESS * abs(sigma)
    means = logits.mean(axis=1, dtype=np.float64)
    deviations = logits.std(axis=1, dtype=np.float64)
    counts, hits = [], 0
    for row, threshold in zip(logits.astype(np.float64), means + sigma * deviations):
        weights = np.exp(row - row.max())
        is_out = row >= threshold
        counts.append(int(is_out.sum()))
        hits += bool(weights[is_out].sum() >= top_p * weights.sum())
    return float(np.mean(counts)), hits / len(logits)


def rows_of(sluice, kind, vocab, rows):
    """Rows, and the machine that wrote them."""
    with tempfile.TemporaryDirectory() as folder:
        path, about = Path(folder, "rows.bin"), Path(folder, "about.json")
        subprocess.run([sluice, "bench", "rows", "--distribution", kind, "--vocab", str(vocab), "--rows", str(rows),
                        "--output", path, "--json", about], check=True, stdout=subprocess.DEVNULL)
        return np.fromfile(path, np.float32).reshape(rows, vocab), json.loads(about.read_text(encoding="utf-8"))["env"]


def study(sluice, table, vocab, rows):
    found, env = [], {}
    for kind in ("peaked", "mid", "flat"):
        logits, env = rows_of(sluice, kind, vocab, rows)
        for name, guess in guesses(table).items():
            for top_p in SHARES:
                gathered, hits = outliers(logits, top_p, guess(top_p))
                found.append({"bench": "qrita_guess", "task": f"p{top_p:g}", "distribution": kind, "vocab": vocab,
                              "rows": rows, "guess": name, "deviations": round(guess(top_p), 3),
                              "outliers": gathered, "hit_rate": hits})
    return found, env


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("sluice")
    parser.add_argument("--vllm", metavar="FOLDER", help="the folder that holds the package vllm")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="few and short rows")
    arguments = parser.parse_args()
    table = table_of(arguments.vllm)
    if table is None:
        print("qrita_guess: no vLLM with the table; the rows of `paper` are left out", file=sys.stderr)
    elif len(table) != 200:
        sys.exit(f"qrita_guess: {TABLE_NAME} has {len(table)} entries, and 200 are expected")
    found, env = study(arguments.sluice, table, *((4096, 4) if arguments.quick else (128256, 16)))
    for row in found:
        print(f"{row['distribution']:8}{row['task']:7}{row['guess']:10}{row['deviations']:8.3f}"
              f"{row['outliers']:12.0f}{row['hit_rate']:8.3f}")
    if arguments.json:
        commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                                cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
        about = {"env": env, "commit": commit}
        lines = ",\n".join("  " + json.dumps(row) for row in found)
        Path(arguments.json).write_text(json.dumps(about)[:-1] + f', "rows": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
