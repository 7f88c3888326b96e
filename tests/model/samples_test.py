#!/usr/bin/env python3
"""The samples on the card of models/default are what its commands print, on every backend.

Usage: samples_test.py SLUICE ROOT [--write]. A sample is a line with `sluice generate ...` in
backquotes, and behind it a block quote with what that prints; only the lines are broken anew.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

SAMPLE = re.compile(r"^`sluice (generate [^\n`]*)`\n\n((?:>[^\n]*\n)*)", re.MULTILINE)


def quoted(text):
    """As a block quote: a paragraph for each line of the text, in lines of at most 100 columns."""
    paragraphs = ["\n".join("> " + line for line in textwrap.wrap(
        paragraph, 98, break_long_words=False, break_on_hyphens=False))
        for paragraph in text.splitlines() if paragraph.strip()]
    return "\n>\n".join(paragraphs) + "\n"


def main():
    sluice, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    card = root / "models/default/README.md"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}

    def output_of(command, **variables):
        return subprocess.run([sluice, *shlex.split(command)], env={**environment, **variables},
                              capture_output=True, encoding="utf-8", timeout=300, check=True,
                              stdin=subprocess.DEVNULL).stdout

    backends = [backend["name"] for backend in json.loads(output_of("inspect backends --json"))
                ["backends"] if backend["available"]]
    text = card.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        card.write_text(SAMPLE.sub(lambda sample: f"`sluice {sample[1]}`\n\n"
                                   + quoted(output_of(sample[1])), text), encoding="utf-8")
        return 0
    samples = SAMPLE.findall(text)
    stale = [(backend, command) for backend in backends for command, expected in samples
             if quoted(output_of(command, SLUICE_BACKEND=backend)) != expected]
    print(f"samples: {len(samples)} on {', '.join(backends)}; other text: {stale or 'none'}")
    return 1 if stale or not samples else 0


if __name__ == "__main__":
    sys.exit(main())
