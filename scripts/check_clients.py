#!/usr/bin/env python3
"""The calls of scripts/client_calls.py, by each client library against `sluice serve`.

    check_clients.py --install              makes build/clients/NAME, with the version below, for each client
    check_clients.py SLUICE [--write]       runs all calls against the built-in model; --write: also writes
                                            tests/clients.json and the table of docs/tools.md
    check_clients.py --page                 fails where that table differs from tests/clients.json

Exit code 77: no client is installed, or the build has no model or finds no grammar engine; a sentence says
which. `make clients` does the first two.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import served  # noqa: E402

# What instructor, langchain-openai, pydantic-ai and litellm need of openai differs: each has its environment.
CLIENTS = {
    "openai": "openai==3.57.0",
    "anthropic": "anthropic==2.14.0",
    "instructor": "instructor==1.17.0",
    "langchain-openai": "langchain-openai==1.7.4",
    "pydantic-ai-slim": "pydantic-ai-slim[openai]==2.68.0",
    "litellm": "litellm==1.110.2",
}
# tests/server/schemathesis_test.py runs it.
TOOLS = {"schemathesis": "schemathesis==4.32.5"}
FOLDER = ROOT / "build/clients"
GRAMMAR = ROOT / "build/python-venv"
RESULTS = ROOT / "tests/clients.json"
PAGE = ROOT / "docs/tools.md"
BEGIN, END = "<!-- clients -->\n", "<!-- end -->"


def install():
    for name, pinned in {**CLIENTS, **TOOLS}.items():
        folder = FOLDER / name
        wanted, mark = [pinned, "jsonschema==4.26.0"], folder / "installed"
        if mark.exists() and mark.read_text() == " ".join(wanted):
            continue
        print(f"clients: {pinned} into {folder.relative_to(ROOT)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", *wanted], check=True)
        mark.write_text(" ".join(wanted))


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def run(sluice, only):
    """The rows of all clients, and whether each call succeeded."""
    if subprocess.run([sluice, "inspect", "model"], capture_output=True).returncode:
        skip("this build has no built-in model")
    check = subprocess.run([sluice, "serve", "--check", "--port", "0", "--grammar-library", GRAMMAR],
                           capture_output=True, text=True)
    if "xgrammar" in check.stderr:
        skip(check.stderr.strip())
    pythons = {name: FOLDER / name / "bin/python" for name in only or CLIENTS}
    missing = [name for name in pythons if not (FOLDER / name / "installed").exists()]
    if missing:
        skip(f"{', '.join(missing)} not in build/clients; make clients installs them")
    rows, good = [], True
    with tempfile.TemporaryDirectory() as folder, served.Server(
            sluice, "--grammar-library", str(GRAMMAR)) as server:
        for name, python in pythons.items():
            file = Path(folder, name)
            result = subprocess.run([python, "-B", ROOT / "scripts/client_calls.py", server.url, name,
                                     "--json", file], env={**os.environ, "NO_PROXY": "*"})
            good &= result.returncode == 0
            if not file.exists():
                raise SystemExit(f"clients: the calls of {name} came to no end")
            rows += json.loads(file.read_text())
    return rows, good


def table(rows):
    clients = {}
    for row in rows:
        clients.setdefault((row["client"], row["version"]), []).append(row)
    lines = ["| client | version | calls | |", "|---|---|---|---|"]
    for (client, version), calls in clients.items():
        shown = ", ".join(f"`{row['call']}`" for row in calls)
        failed = [row["call"] for row in calls if "error" in row]
        state = f"{len(calls) - len(failed)} of {len(calls)} succeed"
        lines.append(f"| {client} | {version} | {shown} | {state} |")
    return "\n".join(lines) + "\n"


def page_with(rows):
    text = PAGE.read_text(encoding="utf-8")
    begin = text.index(BEGIN) + len(BEGIN)
    return text[:begin] + table(rows) + text[text.index(END, begin):]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sluice", nargs="?")
    parser.add_argument("clients", nargs="*")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.install:
        install()
    if options.page and page_with(json.loads(RESULTS.read_text())) != PAGE.read_text(encoding="utf-8"):
        print(f"{PAGE} differs from {RESULTS}; scripts/check_clients.py SLUICE --write writes it")
        return 1
    if not options.sluice:
        return 0
    rows, good = run(str(Path(options.sluice).resolve()), options.clients)
    if options.write and not options.clients:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
        PAGE.write_text(page_with(rows), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
