#!/usr/bin/env python3
"""Report cards of samplers, each by `python -m sluice.conformance`, as rows of one file.

    PYTHONPATH=PACKAGE SLUICE_PEER_WHEELS=DIR bench/conformance_cards.py --commit HASH --json FILE
        [--sampler NAME]... [--draws N]

Samplers that are not installed are left out. The functions of vLLM and SGLang are taken from the
newest of their wheels in DIR, with stand-ins for all that they import (tests/python/peers.py).
"""

import argparse
import contextlib
import json
import logging
import os
import platform
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))
import peers  # noqa: E402

from sluice.conformance import NAMES, load, run  # noqa: E402
from sluice.conformance.__main__ import version_of  # noqa: E402
from sluice.conformance.checks import Size  # noqa: E402
from sluice.conformance.report import as_text, summary  # noqa: E402

warnings.filterwarnings("ignore")


def engine_of(name):
    """(version, context in which the engine's own files can be imported)"""
    found = peers.sources_of(name)
    if not found:
        return None, contextlib.nullcontext()
    sources = found[-1]
    if name == "vllm":
        import test_plugin_vllm as test

        return sources.version, peers.Engine(sources, (test.FILTERS,),
                                             test.given(sources.version, test.Platform()))
    import test_plugin_sglang as test

    return sources.version, peers.Engine(sources, [test.SAMPLER], test.given(sources.version, "pytorch"))


def cards(options):
    for name in options.sampler or NAMES:
        version, context = (engine_of(name) if name in ("vllm", "sglang") else
                            (version_of(name), contextlib.nullcontext()))
        with context:
            try:
                sampler = load(name)
            except (ImportError, OSError) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            results = run(sampler, Size(draws=options.draws))
        print(as_text(name, version or "", results), flush=True)
        yield {"bench": "conformance", "task": "card", "sampler": name, "version": version,
               "summary": summary(results),
               **{one.name: one.outcome for one in results},
               "sentences": {one.name: one.sentence for one in results}}


def environment():
    env = {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            env["cpu"] = line.split(":")[1].strip()
            break
    for package in ("numpy", "torch", "transformers"):
        env[package] = version_of(package) or None
    return env


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--commit", default="")
    parser.add_argument("--sampler", action="append", choices=NAMES)
    parser.add_argument("--draws", type=int, default=8000, help="of a row")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = list(cards(options))
    if options.json:
        head = json.dumps({"env": environment(), "commit": options.commit,
                           "options": {"draws": options.draws}})
        lines = ",\n".join(json.dumps(row) for row in rows)
        options.json.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
