"""``python -m sluice ARGUMENTS`` runs the command ``sluice``: the one that came with this package, else
the one on the PATH. ``--version`` and ``--version --json`` need no command."""

import json
import os
import platform
import shutil
import sys
from importlib import metadata

from sluice import _sluice

REPORTED = ("numpy", "torch", "vllm", "sglang", "transformers", "xgrammar")


def installed(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def report():
    """All that a bug report needs. No package is imported for it."""
    return json.loads(_sluice.build_report()) | {
        "python": platform.python_version(),
        "parts": {"text": hasattr(_sluice, "Tokenizer"), "engines": hasattr(_sluice, "EngineClient")},
        "packages": {package: installed(package) for package in REPORTED},
    }


def command():
    """That of this package, which another package's of the same name is not; else the one on the PATH."""
    try:
        files = metadata.files("sluice-llm") or ()
    except metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.name == "sluice" and os.access(own := os.path.realpath(file.locate()), os.X_OK):
            return own
    return shutil.which("sluice")


def main():
    words = sys.argv[1:]
    if words == ["--version"]:
        print("sluice", _sluice.build()["version"])
        return
    if sorted(words) == ["--json", "--version"]:
        print(json.dumps(report(), separators=(",", ":")))
        return
    program = command()
    if program is None:
        sys.exit("sluice: no command sluice next to this Python or on the PATH: a wheel of a release has it, "
                 "and `make release` or `make demo` builds it")
    try:
        os.execv(program, [program, *words])
    except OSError as error:
        sys.exit(f"sluice: cannot run {program} on {platform.machine()} ({error.strerror}): install the wheel for this machine, "
                 "or build the command with `make demo`")


if __name__ == "__main__":
    main()
