#!/usr/bin/env python3
"""Times what people sample with from Python next to `sluice bench select`, on the same rows.

    python3 bench/peers_python.py [--sluice PATH] [--output bench/results/select-peers-python.json]

One thread everywhere. Hot: the row was read twice just before the call. Cold: calls rotate over
rows that no cache holds. Each peer's own floor, numpy's maximum of the row, is timed next to every
call; Sluice's figures come from the command, which runs between the peers of each kind of rows.
Packages that are not installed are left out, and named.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before any of the packages is imported

try:
    import numpy as np
    from python_peers import K, PACKAGES, nucleus_size
except ImportError:
    sys.exit("peers_python: numpy is missing; pip install " +
             "numpy torch transformers llama-cpp-python")

TARGET_VOCAB = 128256  # for which the targets are stated
TASKS = ("greedy", "top-50", "top-2048", "top-p", "k50-p0.9-draw", "draw")


def time_of(call, argument):
    start = time.perf_counter_ns()
    result = call(argument)
    return time.perf_counter_ns() - start, result


class Rows:
    """Rows of one kind, and copies of them until they take `cold_bytes`."""

    def __init__(self, rows, cold_bytes):
        self.hot = rows
        copies = max(1, -(-cold_bytes // (2 * rows.nbytes)))
        # In pairs: one for the floor, one for the call.
        self.cold = np.tile(np.repeat(rows, 2, axis=0), (copies, 1))
        self.next_cold = 0

    def times(self, peer, cache, budget_ms, least):
        """(calls, median ns of the calls, median ns of the floor)."""
        times, floors = [], []
        for index in range(-1, len(self.hot)):
            if cache == "hot":
                row = floor_row = self.hot[max(index, 0)]
                row.max(), row.max()
            else:
                floor_row, row = self.cold[self.next_cold], self.cold[self.next_cold + 1]
                self.next_cold = (self.next_cold + 2) % len(self.cold)
            floor, _ = time_of(np.max, floor_row)
            argument = peer.prepare(row)
            if cache == "hot":
                row.max(), row.max()
            elapsed, _ = time_of(peer.call, argument)
            if index < 0:  # finds code and memory cold
                continue
            times.append(elapsed)
            floors.append(floor)
            if sum(times) > budget_ms * 1e6 and len(times) >= least:
                break
        return len(times), statistics.median(times), statistics.median(floors)


def check(peer, row):
    """A peer that computes something else would be no peer."""
    answer = peer.answer(peer.call(peer.prepare(row)))
    if peer.task == "greedy":
        wanted, slack = int(row.argmax()), 0
    elif peer.task in ("top-50", "top-2048"):
        wanted, slack = min(K[peer.task], row.size), 0
    elif peer.task == "top-p":
        wanted = nucleus_size(row)
        slack = max(1, wanted // 20)  # sums in fp32 are off by some tokens
    else:
        wanted, slack = row.size // 2, row.size // 2
    if abs(answer - wanted) > slack:
        sys.exit(f"peers_python: {peer.name} gives {answer} for {peer.task}, not {wanted}")


def installed_peers(say):
    peers, versions, skipped = [], {}, {}
    for package, peers_of in PACKAGES.items():
        try:
            peers += peers_of()
            versions[package] = metadata.version(package)
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            skipped[package] = f"pip install {package}"
            say(f"skipped: {package} ({error}); pip install {package}")
    return peers, versions, skipped


def run_sluice(args, *words):
    result = subprocess.run([args.sluice, *words], capture_output=True, encoding="utf-8",
                            stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        sys.exit(f"peers_python: {' '.join([args.sluice, *words])}: {result.stderr.strip()}")
    return result.stdout


def sluice_rows(args, folder, distribution, backend):
    """What the command says, by task and state of the caches."""
    path = os.path.join(folder, "sluice.json")
    run_sluice(args, "bench", "select", "--vocab", str(args.vocab), "--rows", str(args.rows),
               "--distribution", distribution, "--dtype", "fp32", "--task", ",".join(TASKS),
               "--backend", backend, "--json", path, *(["--quick"] if args.quick else []))
    report = json.loads(Path(path).read_text(encoding="utf-8"))
    return report, {(row["task"], row["cache"]): row for row in report["rows"]}


def table(rows):
    lines = [("task", "rows", "peer", "hot us", "times Sluice's", "target", "cold us",
              "times Sluice's")]
    cold = {(r["task"], r["distribution"], r["peer"]): r for r in rows if r["cache"] == "cold"}
    for row in rows:
        if row["cache"] != "hot":
            continue
        other = cold[row["task"], row["distribution"], row["peer"]]
        ratio = row["peer_ns"] / row["ns"]
        target = row["peer_target"]
        verdict = "" if target is None else f"{target:g} {'met' if ratio >= target else 'MISSED'}"
        lines.append((row["task"], row["distribution"], row["peer"], f"{row['peer_ns'] / 1e3:.1f}",
                      f"x{ratio:.1f}", verdict, f"{other['peer_ns'] / 1e3:.1f}",
                      f"x{other['peer_ns'] / other['ns']:.1f}"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def measure(args, say):
    backends = json.loads(run_sluice(args, "inspect", "backends", "--json"))["backends"]
    backend = next(b["name"] for b in backends if b["available"])
    peers, versions, skipped = installed_peers(say)
    rows, environment, commit = [], {}, ""
    with tempfile.TemporaryDirectory() as folder:
        for distribution in args.distribution.split(","):
            path = os.path.join(folder, "rows")
            run_sluice(args, "bench", "rows", "--vocab", str(args.vocab), "--rows", str(args.rows),
                       "--distribution", distribution, "--output", path)
            values = np.fromfile(path, np.float32).reshape(args.rows, args.vocab)
            store = Rows(values, args.cold_mib << 20)
            say(f"{distribution}: sluice bench select")
            report, sluice = sluice_rows(args, folder, distribution, backend)
            environment, commit = report["env"], report["commit"]
            for peer in peers:
                say(f"{distribution}: {peer.task}: {peer.name}")
                check(peer, values[0])
                for cache in ("hot", "cold"):
                    ours = sluice[peer.task, cache]
                    calls, peer_ns, floor = store.times(peer, cache, args.budget_ms, args.least)
                    promised = cache == "hot" and peer.target and args.vocab == TARGET_VOCAB
                    keys = ("task", "backend", "dtype", "vocab", "batch", "distribution", "cache",
                            "ns", "mean_ns", "floor_ns", "exact")
                    rows.append({"bench": "select", **{key: ours[key] for key in keys},
                                 "peer": peer.name, "peer_ns": peer_ns, "peer_calls": calls,
                                 "peer_floor_ns": floor,
                                 "peer_target": peer.target if promised else None})
    rows.sort(key=lambda row: TASKS.index(row["task"]))  # stable: peers stay in their order
    environment = {**environment, "python": sys.version.split()[0], "peers": versions,
                   "skipped": skipped}
    return {"env": environment, "commit": commit, "rows": rows}


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluice", default=str(root / "build/release/sluice"), help="the command")
    parser.add_argument("--output", help="also write the results into this file")
    parser.add_argument("--vocab", type=int, default=TARGET_VOCAB, help="tokens in a row")
    parser.add_argument("--rows", type=int, default=200, help="different rows of a kind")
    parser.add_argument("--distribution", default="peaked,mid,flat", help="kinds of rows")
    parser.add_argument("--quick", action="store_true", help="seconds; the figures mean nothing")
    args = parser.parse_args()
    args.budget_ms, args.least, args.cold_mib = 100.0, 5, 320
    if args.quick:
        args.budget_ms, args.least, args.cold_mib, args.rows = 1.0, 1, 8, 4
    if not os.access(args.sluice, os.X_OK):
        parser.error(f"--sluice: {args.sluice} is no program; make build makes it")

    def say(text):
        if sys.stderr.isatty():
            print(f"\r\x1b[Kpeers_python: {text}", end="", file=sys.stderr, flush=True)

    report = measure(args, say)
    say("")
    for package, command in report["env"]["skipped"].items():
        print(f"skipped: {package} is not installed ({command})")
    if args.quick:
        print("--quick: too few rows for any of these figures to mean something.")
    table(report["rows"])
    if args.output:
        head = {key: report[key] for key in ("env", "commit")}
        lines = ",\n".join(json.dumps(row) for row in report["rows"])
        text = json.dumps(head)[:-1] + ', "rows": [\n' + lines + "\n]}\n"
        Path(args.output).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
