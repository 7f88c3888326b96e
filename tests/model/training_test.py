#!/usr/bin/env python3
"""Runs models/train/selftest.py. Usage: training_test.py ROOT.

Exits with 77, and says why, where Python lacks a package that training takes.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

SKIPPED = 77


def main() -> int:
    for package in ("numpy", "tokenizers", "torch"):
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {sys.executable} has no {package}")
            return SKIPPED
    return subprocess.call([sys.executable, "-B", Path(sys.argv[1]) / "models/train/selftest.py"])


if __name__ == "__main__":
    sys.exit(main())
