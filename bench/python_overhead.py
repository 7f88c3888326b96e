#!/usr/bin/env python3
"""Times what a call from Python costs in addition to the C++ work in it, and what `import sluice` costs.

    python3 bench/python_overhead.py [--output bench/results/python-overhead.json]

The overhead of a call is its time on one row of eight tokens, less what such a row takes among 1024
in one call: everything that does not grow with the rows counts, the library's own checks included.
Results are read afterwards, so `ids` is timed by itself. An import is timed in new processes, next
to processes that import nothing, in turns.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import sluice

VOCAB, ROWS = 8, 1024
CALL_TARGET_NS = 3000
IMPORT_TARGET_NS = 60_000_000
KEYWORDS = {"temperature": 0.8, "top_k": 4, "top_p": 0.9}
PARAMS = sluice.SamplingParams(**KEYWORDS, seed=42)


def tasks(one, many):
    """(name, call on rows) for every timed call."""
    cuts = {len(rows): sluice.select(rows) for rows in (one, many)}
    tokens = sluice.sample(one, PARAMS)
    return [
        ("select", lambda rows: sluice.select(rows, **KEYWORDS)),
        ("select, params", lambda rows: sluice.select(rows, PARAMS)),
        ("select, out", lambda rows: sluice.select(rows, **KEYWORDS, out=cuts[len(rows)])),
        ("sample", lambda rows: sluice.sample(rows, **KEYWORDS, seed=42, position=7)),
        ("sample, params", lambda rows: sluice.sample(rows, PARAMS, position=7)),
        ("sample, no seed", lambda rows: sluice.sample(rows, **KEYWORDS)),
        ("sample, ids", lambda rows: sluice.sample(rows, PARAMS, position=7).ids),
        ("ids of a result", lambda rows: tokens.ids),
    ]


def time_of(call, rows, calls):
    start = time.perf_counter_ns()
    for _ in range(calls):
        call(rows)
    return (time.perf_counter_ns() - start) / calls


def call_rows(repeats, calls):
    random = np.random.default_rng(1)
    many = random.normal(0, 3, (ROWS, VOCAB)).astype(np.float32)
    one = many[:1].copy()
    backend = next(info["name"] for info in sluice.backends() if info["available"])
    defined = sluice.sample(many, PARAMS, backend="ref").ids
    exact = bool((sluice.sample(many, PARAMS).ids == defined).all())
    rows = []
    for name, call in tasks(one, many):
        alone, among = [], []
        for repeat in range(repeats + 1):
            pair = time_of(call, one, calls), time_of(call, many, max(1, calls // 500)) / ROWS
            if repeat > 0:  # the first finds code and memory cold
                alone.append(pair[0])
                among.append(pair[1])
        ns, floor = statistics.median(alone), statistics.median(among)
        rows.append({"bench": "python", "task": name, "backend": backend, "dtype": "float32",
                     "vocab": VOCAB, "batch": 1, "distribution": "normal", "ns": round(ns),
                     "floor_ns": round(floor), "overhead_ns": round(ns - floor), "exact": exact,
                     "target": CALL_TARGET_NS, "target_of": "overhead"})
    return rows


def import_row(repeats):
    def time_process(code):
        start = time.perf_counter_ns()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter_ns() - start

    pairs = [(time_process("import sluice"), time_process("pass")) for _ in range(repeats + 1)][1:]
    ns, floor = (statistics.median(times) for times in zip(*pairs))
    return {"bench": "python", "task": "import", "ns": round(ns), "floor_ns": round(floor),
            "overhead_ns": round(ns - floor), "target": IMPORT_TARGET_NS, "target_of": "overhead"}


def environment():
    cpu = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(": ", 1)[1] for line in info.read_text(encoding="utf-8").splitlines()
                 if line.startswith("model name")]
        cpu = names[0] if names else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "compiler": sluice._sluice.build()["compiler"],
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "python": platform.python_version(), "numpy": np.__version__}


def commit():
    result = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent,
                            capture_output=True, encoding="utf-8")
    return result.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="also write the results into this file")
    parser.add_argument("--quick", action="store_true", help="a second; the figures mean nothing")
    args = parser.parse_args()
    repeats, calls, imports = (1, 100, 1) if args.quick else (15, 10_000, 30)
    rows = [*call_rows(repeats, calls), import_row(imports)]
    for row in rows:
        verdict = "met" if row["overhead_ns"] <= row["target"] else "MISSED"
        print(f"  {row['task']:16} {row['ns']:>10} ns, of which the work {row['floor_ns']:>10},"
              f" overhead {row['overhead_ns']:>10} (at most {row['target']}: {verdict})")
    if args.output:
        head = {"env": environment(), "commit": commit()}
        lines = ",\n".join(json.dumps(row) for row in rows)
        text = json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n"
        Path(args.output).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
