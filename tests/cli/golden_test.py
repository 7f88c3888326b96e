#!/usr/bin/env python3
"""The output of the command that the documentation shows is what the command prints.

Usage: golden_test.py SLUICE ROOT [--write]. golden.txt has commands, `$ sluice ...`, each between two
lines `# [name]`; from a command to the line behind it stands its output.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

SECTION = re.compile(r"^# \[(\w+)\]\n\$ sluice ([^\n]*)\n(.*?)^# \[\1\]\n", re.DOTALL | re.MULTILINE)


def main():
    sluice, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    golden = Path(__file__).with_name("golden.txt")
    text = golden.read_text(encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    stale, skipped = [], []

    def run(command, **options):
        return subprocess.run([sluice, *shlex.split(command)], cwd=root, env=environment,
                              capture_output=True, encoding="utf-8", timeout=60,
                              stdin=subprocess.DEVNULL, **options)

    has_model = run("inspect model").returncode == 0  # not without the text side, or the weights

    def output_of(match):
        name, command, old = match.groups()
        if not has_model and command.startswith(("generate", "inspect model")):
            skipped.append(name)
            return match.group()
        result = run(command, check=True)
        if result.stdout != old:
            stale.append(name)
        return f"# [{name}]\n$ sluice {command}\n{result.stdout}# [{name}]\n"

    updated, found = SECTION.subn(output_of, text)
    if "--write" in sys.argv:
        golden.write_text(updated, encoding="utf-8")
        return 0
    print(f"golden: {found} commands, stale: {', '.join(stale) or 'none'}, "
          f"not in this build: {', '.join(skipped) or 'none'}")
    return 1 if stale or not found else 0


if __name__ == "__main__":
    sys.exit(main())
