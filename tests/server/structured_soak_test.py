#!/usr/bin/env python3
"""Every answer that ends by itself matches its JSON schema, whatever happens around it: many at once,
stops, cuts, preemptions, a step in flight, drafts. The texts are the same with all of these and without.

Usage: structured_soak_test.py SLUICE ROOT [--requests N] [--json FILE]. Exit code 77: skipped. The answers are checked
here, and by the package jsonschema where it is installed.
"""

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("sluice")
parser.add_argument("root", type=Path)
parser.add_argument("--requests", type=int, default=200)
parser.add_argument("--streams", type=int, default=16)
parser.add_argument("--json", type=Path, help="write the figures into this file")
options = parser.parse_args()
sys.path.insert(0, str(options.root / "tests/cli"))
import served  # noqa: E402
from structured_schemas import SCHEMAS, matches  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

REPEATING = "The king said to the queen: my dear queen, the golden bird is gone. " * 3  # which has drafts


def bodies() -> list:
    """Of these requests some have a stop, and some a few tokens alone."""
    choose, made = random.Random(1), []
    for i in range(options.requests):
        name = list(SCHEMAS)[i % len(SCHEMAS)]
        body = {"prompt": choose.choice(["Once upon a time", "The king said: {", "A cat"]), "seed": i,
                "max_tokens": 250, "temperature": choose.choice([0.0, 0.8, 1.5]),
                "response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMAS[name]}}}
        if choose.random() < 0.1:
            body["stop"] = choose.choice([["\""], ["]"], ["true", "1"]])
        if choose.random() < 0.1:
            body["max_tokens"] = choose.randrange(1, 20)
        made.append((name, body))
    return made


def answers(requests: list, *flags: str) -> tuple:
    """The choices of all, and the counters of the engine at the end."""
    found, lock, left = [None] * len(requests), threading.Lock(), iter(range(len(requests)))
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/engine"
        with subprocess.Popen([options.sluice, "engine", "--listen", endpoint, "--quiet", "--json", "--max-requests",
                               "16", "--grammar-library", sys.prefix, *flags], stdout=subprocess.PIPE, text=True) as engine:
            try:
                give(endpoint, requests, found, lock, left)
            finally:
                engine.send_signal(signal.SIGINT)
            written, _ = engine.communicate()
    return found, json.loads(written.splitlines()[-1])["engine"]


def give(endpoint: str, requests: list, found: list, lock: threading.Lock, left: iter) -> None:
    with served.Server(options.sluice, "--quiet", "--engine", endpoint) as server:
        def stream() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            while True:
                with lock:
                    i = next(left, None)
                if i is None:
                    return
                connection.request("POST", "/v1/completions", json.dumps(requests[i][1]),
                                   {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                found[i] = answer["choices"][0] if "choices" in answer else answer

        streams = [threading.Thread(target=stream) for _ in range(options.streams)]
        for one in streams:
            one.start()
        for one in streams:
            one.join()


def main() -> None:
    if subprocess.run([options.sluice, "inspect", "model"], capture_output=True).returncode:
        print("skipped: this build has no built-in model")
        sys.exit(77)
    if not list(Path(sys.prefix).glob("lib/python*/site-packages/xgrammar/libxgrammar_bindings.so")):
        print("skipped: no xgrammar; scripts/setup.sh python installs it")
        sys.exit(77)
    commit = subprocess.run(["git", "-C", options.root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
                            capture_output=True, text=True).stdout.strip()
    requests = bodies()
    plain, _ = answers(requests)
    # A cache of a few requests: others are preempted.
    rows, drafted = [], ("none", {"prompt": REPEATING, "max_tokens": 100, "temperature": 0, "seed": 1})
    for flags in (["--draft-tokens", "4"], ["--steps-in-flight", "1"]):
        rough, counters = answers([*requests, drafted], "--cache-tokens", "288", "--max-prefixes", "4", *flags)
        for (_, body), choice, other in zip(requests, plain, rough):
            if any(choice.get(field) != other.get(field) for field in ("text", "finish_reason", "stop_reason")):
                sys.exit(f"{body}: {choice} and, with {flags}, {other}")
        rows.append({"bench": "structured soak", "task": flags[0], "requests": len(requests), **{
            name: counters[name] for name in ("preemptions", "draft_tokens", "accepted_draft_tokens", "compiled",
                                              "cached", "masks", "mask_waits")}})
        print(rows[-1])
        if counters["preemptions"] == 0 or (counters["draft_tokens"] == 0) == ("--draft-tokens" in flags):
            sys.exit("no preemption, or no draft")
    ended = dict.fromkeys(SCHEMAS, 0)
    for (name, body), choice in zip(requests, plain):
        if choice.get("finish_reason") not in ("stop", "length"):
            sys.exit(f"{body}: {choice}")
        if choice["finish_reason"] == "length" or choice["stop_reason"] is not None:
            continue
        value = json.loads(choice["text"])
        if not matches(value, SCHEMAS[name], SCHEMAS[name]):
            sys.exit(f"{choice['text']} does not match {SCHEMAS[name]}")
        if jsonschema is not None:
            jsonschema.validate(value, SCHEMAS[name])
        ended[name] += 1
    print(f"{sum(ended.values())} of {len(requests)} answers ended by themselves, and all match: {ended}"
          + ("" if jsonschema else "; without the package jsonschema"))
    if options.json is not None:
        rows.append({"bench": "structured soak", "task": "answers", "requests": len(requests),
                     "ended": sum(ended.values()), "match": sum(ended.values())})
        options.json.write_text(json.dumps({"env": {"cores": os.cpu_count()}, "commit": commit, "rows": rows},
                                          indent=1) + "\n", encoding="utf-8")
    if 2 * sum(ended.values()) < len(requests) or not all(ended.values()):
        sys.exit("too few ended")


if __name__ == "__main__":
    main()
