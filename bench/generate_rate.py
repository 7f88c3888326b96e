#!/usr/bin/env python3
"""What a token of the built-in model costs, on one core: `sluice generate` of one text, of several at
once, and of a long prompt.

    python3 bench/generate_rate.py SLUICE --json FILE [--runs N]

Of each backend, in turns; the median run counts. Times of parts go by the clock; cpu_ns, of all that
the process did for the tokens, by its processor time, which other work disturbs less. What opening
the model takes is not in it: a run of one token is subtracted. The floor of a token is not shown: 15
MB are read for it, from whichever cache has them.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess

PROMPT = "Once upon a time"
LONG_PROMPT = "the king said to the old woman " * 140
# Texts at once, and tokens of each.
BATCHES = {1: 400, 2: 200, 8: 100, 64: 60}


def run(sluice: str, backend: str, arguments: list) -> tuple:
    command = [sluice, "generate", "--seed", "1", "--ignore-eos", "--json", "--quiet", "--threads",
               "1", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "SLUICE_BACKEND": backend}) as process:
        written = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(written), (usage.ru_utime + usage.ru_stime) * 1e9


def texts(sluice: str, backend: str, batch: int, tokens: int) -> dict:
    arguments = [PROMPT, "--choices", str(batch), "--max-tokens"]
    written, cpu = run(sluice, backend, [*arguments, str(tokens)])
    _, opened = run(sluice, backend, [*arguments, "1"])
    return {**written["statistics"], "cpu_ns": cpu - opened}


def prompt(sluice: str, backend: str) -> dict:
    written, cpu = run(sluice, backend, [LONG_PROMPT, "--max-tokens", "1"])
    _, opened = run(sluice, backend, [PROMPT, "--max-tokens", "1"])
    return {**written["statistics"], "cpu_ns": cpu - opened}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", required=True)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    listed = subprocess.run([arguments.sluice, "inspect", "backends", "--json"], check=True,
                            capture_output=True, text=True)
    backends = [b["name"] for b in json.loads(listed.stdout)["backends"]
                if b["available"] and b["name"] != "ref"]
    written, _ = run(arguments.sluice, backends[0], [LONG_PROMPT, "--max-tokens", "1"])
    prompt_tokens = len(written["prompt_token_ids"])
    runs = {}
    for _ in range(arguments.runs):
        for backend in backends:
            for batch, tokens in BATCHES.items():
                runs.setdefault((backend, "embedded", batch, tokens), []).append(
                    texts(arguments.sluice, backend, batch, tokens))
            runs.setdefault((backend, "prompt", 1, prompt_tokens), []).append(
                prompt(arguments.sluice, backend))
    rows = [{"bench": "generate", "task": task, "backend": backend, "batch": batch, "tokens": tokens,
             **{field: statistics.median(one[field] for one in of_case)
                for field in of_case[0] if field.endswith("_ns")}}
            for (backend, task, batch, tokens), of_case in runs.items()]
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
