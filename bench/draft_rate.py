#!/usr/bin/env python3
"""What a token costs with drafts from the request's own text: `sluice serve` with several values of
--draft-tokens, in turns, on the same texts.

    python3 bench/draft_rate.py SLUICE --json FILE [--runs N]

One request at a time, on one thread of the engine. cpu_us is the processor time of the engine for a
token, which other work disturbs less than the clock does; the median run counts. The texts must be
the same with drafts and without, or the script stops.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import urllib.request

REPEATING = ("The king said to the queen: my dear queen, the golden bird is gone. The queen said to the king: my "
             "dear king, the golden bird is gone. The king said to the queen: my dear queen,")
CASES = {"repeating, greedy": (REPEATING, 0), "repeating, T = 0.8": (REPEATING, 0.8),
         "a story, greedy": ("Once upon a time", 0), "a story, T = 1": ("Once upon a time", 1)}
DRAFTS = (0, 4, 8, 15)
TOKENS = 400


class Server:
    def __init__(self, sluice: str, drafts: int):
        self.process = subprocess.Popen(
            [sluice, "serve", "--port", "0", "--quiet", "--json", "--draft-tokens", str(drafts), "--max-prefixes",
             "0", "--engine-threads", "1"], stdout=subprocess.PIPE, encoding="utf-8")
        self.started = json.loads(self.process.stdout.readline())

    def engine_seconds(self) -> float:
        with open(f"/proc/{self.started['engine_pid']}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def text(self, prompt: str, temperature: float, seed: int) -> str:
        body = json.dumps({"prompt": prompt, "max_tokens": TOKENS, "temperature": temperature, "seed": seed,
                           "ignore_eos": True}).encode()
        request = urllib.request.Request(self.started["url"] + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["text"]


def processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sluice")
    parser.add_argument("--json", required=True)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    servers = {drafts: Server(arguments.sluice, drafts) for drafts in DRAFTS}
    costs, texts = {}, {}
    try:
        for run in range(arguments.runs):
            for task, (prompt, temperature) in CASES.items():
                for drafts, server in servers.items():
                    before = server.engine_seconds()
                    text = server.text(prompt, temperature, run)
                    costs.setdefault((task, drafts), []).append((server.engine_seconds() - before) / TOKENS * 1e6)
                    if texts.setdefault((task, run), text) != text:
                        raise SystemExit(f"{task}, run {run}: another text with {drafts} drafts")
    finally:
        for server in servers.values():
            server.process.terminate()
    rows = [{"bench": "drafts", "task": task, "drafts": drafts, "tokens": TOKENS,
             "cpu_us": statistics.median(of_case), "cpu_us_of_runs": of_case}
            for (task, drafts), of_case in costs.items()]
    commit = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"env": {"cpu": processor(), "cores": os.cpu_count(), "os": platform.platform(),
                           "load": os.getloadavg()[0]},
                   "commit": commit, "rows": rows}, file, indent=1)
        file.write("\n")
    for row in rows:
        print(row["task"], row["drafts"], round(row["cpu_us"]))


if __name__ == "__main__":
    main()
