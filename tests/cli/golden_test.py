#!/usr/bin/env python3
"""The output of the command that the documentation shows is what the command prints.

Usage: golden_test.py SLUICE ROOT [--write]. golden.txt has sections between two lines `# [name]`: commands,
`$ sluice ...` and `$ curl ...`, each with its output after it; of a command that ends with exit code 2, its
standard error. A command that ends in `&` goes on until the end of its section, and its output is its first line.
Names of sockets, ipc://@NAME, are this run's own, and so is the port of 127.0.0.1:8080. The name and the time of a
response, which differ each time, are written as dots. Sections with a grammar have the library of
scripts/setup.sh.
"""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

SECTION = re.compile(r"^# \[(\w+)\]\n(\$ sluice [^\n]*\n.*?)^# \[\1\]\n", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ ((?:sluice|curl) [^\n]*)\n", re.MULTILINE)
NEEDS_MODEL = tuple(f"sluice {command}" for command in (
    "generate", "inspect model", "engine", "mock-engine", "replay", "serve"))
NEEDS_GRAMMARS = ("--json-schema", "response_format")
ADDRESS = "127.0.0.1:8080"
CHANGES = re.compile(r'("id":"\w+-|"created":)[\w-]+')


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    sluice, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    golden = Path(__file__).with_name("golden.txt")
    text = golden.read_text(encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
    options = {"cwd": root, "env": environment, "encoding": "utf-8", "stdin": subprocess.DEVNULL}
    own = f"-{os.getpid()}"
    stale, skipped = [], []

    port = free_port()

    def words(command):
        command = re.sub(r"(ipc://@\w+)", rf"\1{own}", command).replace(ADDRESS, f"127.0.0.1:{port}")
        program, *arguments = shlex.split(command)
        if arguments[0] == "serve":
            arguments += ["--port", str(port)]
        return [sluice if program == "sluice" else program, *arguments]

    def shown(output):
        text = output.replace(own, "").replace(f"127.0.0.1:{port}", ADDRESS)
        text = CHANGES.sub(r"\1...", text)
        return text if text.endswith("\n") or not text else text + "\n"

    def has(*words):  # a command that is none would show the help of all with --help
        names = subprocess.run([sluice, "--help"], capture_output=True, text=True).stdout
        return re.search(rf"(?m)^  {words[0]} ", names) and subprocess.run(
            [sluice, *words], capture_output=True).returncode == 0

    has_model = has("inspect", "model")  # not without the text side, or the weights
    has_link = has("engine", "--help")
    has_server = has("serve", "--help") and shutil.which("curl") is not None

    library = root / "build/python-venv"
    # A sanitizer's program cannot load it.
    has_grammars = bool(list(library.glob("lib/python*/site-packages/xgrammar/*.so"))) and has(
        f"generate once --json-object --max-tokens 1 --quiet --grammar-library {library.resolve()}")

    def is_with_grammar(commands):
        return any(word in command for command in commands for word in NEEDS_GRAMMARS)

    def run_section(commands):
        written, servers = [], []
        environment.pop("SLUICE_GRAMMAR_LIBRARY", None)
        if is_with_grammar(commands):
            environment["SLUICE_GRAMMAR_LIBRARY"] = str(library.resolve())
        try:
            for command in commands:
                if command.endswith("&"):
                    servers.append(subprocess.Popen(words(command[:-1]), stdout=subprocess.PIPE,
                                                    stderr=subprocess.DEVNULL, **options))
                    output = servers[-1].stdout.readline()
                else:
                    result = subprocess.run(words(command), capture_output=True, timeout=180, **options)
                    if result.returncode not in (0, 2):
                        raise RuntimeError(f"{command}: {result.stderr}")
                    output = result.stderr if result.returncode == 2 else result.stdout
                written.append(f"$ {command}\n{shown(output)}")
        finally:
            for server in servers:
                server.terminate()
                server.communicate(timeout=180)
        return "".join(written)

    def output_of(match):
        name, old = match.groups()
        commands = COMMAND.findall(old)
        if (not has_model and any(c.startswith(NEEDS_MODEL) for c in commands)) or (
                not has_link and any("--engine" in c or c.endswith("&") for c in commands)) or (
                not has_server and any(c.startswith("curl") or c == "sluice --help" for c in commands)) or (
                not has_grammars and is_with_grammar(commands)):
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
