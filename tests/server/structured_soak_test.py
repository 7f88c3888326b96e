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
import re
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

try:
    import jsonschema
except ImportError:
    jsonschema = None

TEXT = {"type": "string", "maxLength": 12}
TREE = {"type": "object", "properties": {"leaf": {"type": "integer", "minimum": 0, "maximum": 9},
                                         "nodes": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
        "required": ["leaf"]}


def record(**properties) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties)}


SCHEMAS = {
    "nesting": record(a=record(b=record(c={"type": "array", "items": {"type": "array", "items": {"type": "boolean"},
                                                                      "maxItems": 2}, "maxItems": 3}))),
    "enums": record(mood={"enum": ["glad", "sad", 1, None, True]}, kind={"const": "king"},
                    way={"type": "string", "enum": ["n", "north", "north-east"]}),
    "patterns": record(code={"type": "string", "pattern": "^[A-F]{3}-[0-9]{3}$"},
                       word={"type": "string", "pattern": "^(a|bc)+d?$"}),
    "bounds": record(age={"type": "integer", "minimum": 20, "maximum": 99},
                     low={"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 5},
                     list={"type": "array", "items": {"type": "integer", "minimum": -7, "maximum": 13}, "minItems": 2,
                           "maxItems": 5}),
    "lengths": record(name={"type": "string", "minLength": 2, "maxLength": 9}, text=TEXT),
    "anyOf": {"anyOf": [{"type": "array", "items": {"type": "boolean"}, "maxItems": 3}, record(none={"type": "null"}),
                        {"type": "integer", "minimum": 0, "maximum": 999}]},
    "$ref": {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}},
    "optional": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": TEXT, "c": {"type": "null"}},
                 "required": ["b"]},
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 3,
                             "propertyNames": {"type": "string", "pattern": "^[a-d]{1,4}$"}},
}
REPEATING = "The king said to the queen: my dear queen, the golden bird is gone. " * 3  # which has drafts
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def equal(a, b) -> bool:
    return type(a) is type(b) and a == b


def matches(value, schema: dict, root: dict) -> bool:
    if "$ref" in schema:
        return matches(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in schema:
        return any(matches(value, one, root) for one in schema["anyOf"])
    if "const" in schema and not equal(value, schema["const"]):
        return False
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        return False
    of_type = schema.get("type")
    if of_type == "integer":
        return (type(value) is int and schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1))
    if of_type is not None and not isinstance(value, TYPES[of_type]):
        return False
    if of_type == "string":
        return (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
                and re.search(schema.get("pattern", ""), value) is not None)
    if of_type == "array":
        return (schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                and all(matches(one, schema["items"], root) for one in value))
    if of_type == "object":
        return (all(name in value for name in schema.get("required", ())) and len(value) <= schema.get(
            "maxProperties", len(value)) and all(matches(name, schema.get("propertyNames", {}), root) for name in value)
                and all(matches(one, schema.get("properties", {}).get(name) or schema.get("additionalProperties")
                                or {"enum": []}, root) for name, one in value.items()))
    return True


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
