#!/usr/bin/env python3
"""Tokens a second of the built-in model, on one core: `sluice generate` from its prompt to its text.

    python3 bench/generate_rate.py SLUICE --json FILE

Of each backend, in turns; the median run counts. The floor of a token is not shown: 15 MB are read
for it, from whichever cache has them.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess

RUNS = 7
TOKENS = 400


def run(sluice: str, backend: str) -> dict:
    command = [sluice, "generate", "Once upon a time", "--seed", "1", "--ignore-eos", "--json",
               "--quiet", "--threads", "1", "--max-tokens", str(TOKENS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**os.environ, "SLUICE_BACKEND": backend})
    return json.loads(done.stdout)["statistics"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    listed = subprocess.run([arguments.sluice, "inspect", "backends", "--json"], check=True,
                            capture_output=True, text=True)
    backends = [b["name"] for b in json.loads(listed.stdout)["backends"]
                if b["available"] and b["name"] != "ref"]
    runs = {backend: [] for backend in backends}
    for _ in range(RUNS):
        for backend in backends:
            runs[backend].append(run(arguments.sluice, backend))

    def median(backend: str, field: str) -> float:
        return statistics.median(one[field] for one in runs[backend])

    fields = [field for field in runs[backends[0]][0] if field.endswith("_ns")]
    rows = [{"bench": "generate", "task": "embedded", "backend": backend, "batch": 1,
             "tokens": TOKENS, **{field: median(backend, field) for field in fields}}
            for backend in backends]
    commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    load = os.getloadavg()[0]
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"env": {"machine": platform.machine(), "os": platform.platform(),
                           "processors": os.cpu_count(), "load": load},
                   "commit": commit, "rows": rows}, file, indent=1)
        file.write("\n")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
