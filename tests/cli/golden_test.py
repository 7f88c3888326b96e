#!/usr/bin/env python3
"""The output of the command that the documentation shows is what the command prints.

Usage: golden_test.py SLUICE ROOT [--write]. golden.txt has sections between two lines `# [name]`: commands,
`$ sluice ...`, and behind each its output. A command that ends in `&` goes on until the end of its section,
and its output is its first line. Names of sockets, ipc://@NAME, are this run's own.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

SECTION = re.compile(r"^# \[(\w+)\]\n(\$ sluice [^\n]*\n.*?)^# \[\1\]\n", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ sluice ([^\n]*)\n", re.MULTILINE)
NEEDS_MODEL = ("generate", "inspect model", "engine", "mock-engine", "replay")


def main():
    sluice, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    golden = Path(__file__).with_name("golden.txt")
    text = golden.read_text(encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    options = {"cwd": root, "env": environment, "encoding": "utf-8", "stdin": subprocess.DEVNULL}
    own = f"-{os.getpid()}"
    stale, skipped = [], []

    def words(command):
        return [sluice, *shlex.split(re.sub(r"(ipc://@\w+)", rf"\1{own}", command))]

    def has(command):
        return subprocess.run([sluice, *command.split()], capture_output=True).returncode == 0

    has_model = has("inspect model")  # not without the text side, or the weights
    has_link = has("engine --help")

    def run_section(commands):
        written, servers = [], []
        try:
            for command in commands:
                if command.endswith("&"):
                    servers.append(subprocess.Popen(words(command[:-1]), stdout=subprocess.PIPE,
                                                    stderr=subprocess.DEVNULL, **options))
                    output = servers[-1].stdout.readline()
                else:
                    output = subprocess.run(words(command), capture_output=True, timeout=180,
                                            check=True, **options).stdout
                written.append(f"$ sluice {command}\n{output}".replace(own, ""))
        finally:
            for server in servers:
                server.terminate()
                server.communicate(timeout=180)
        return "".join(written)

    def output_of(match):
        name, old = match.groups()
        commands = COMMAND.findall(old)
        if (not has_model and any(c.startswith(NEEDS_MODEL) for c in commands)) or (
                not has_link and any("--engine" in c or c.endswith("&") for c in commands)):
            skipped.append(name)
            return match.group()
        new = run_section(commands)
        if new != old:
            stale.append(name)
        return f"# [{name}]\n{new}# [{name}]\n"

    updated, found = SECTION.subn(output_of, text)
    if "--write" in sys.argv:
        golden.write_text(updated, encoding="utf-8")
        return 0
    print(f"golden: {found} sections, stale: {', '.join(stale) or 'none'}, "
          f"not in this build: {', '.join(skipped) or 'none'}")
    return 1 if stale or not found else 0


if __name__ == "__main__":
    sys.exit(main())
