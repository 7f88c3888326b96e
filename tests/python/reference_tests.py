#!/usr/bin/env python3
"""Runs the tests of sluice.reference. SLUICE_C_LIBRARY names the shared C library to compare with.

Exits with 77, and says why, where they cannot run here. More arguments are pytest's.
"""

import sys
from pathlib import Path

SKIPPED = 77


def main() -> int:
    if sys.version_info < (3, 11):
        print(f"skipped: python 3.11 is needed, this is {sys.version.split()[0]}")
        return SKIPPED
    try:
        import numpy  # noqa: F401
        import pytest
    except ImportError as error:
        print(f"skipped: {sys.executable} has no {error.name}")
        return SKIPPED
    tests = sorted(str(path) for path in Path(__file__).parent.glob("reference_*_test.py"))
    tests.append(str(Path(__file__).parent / "reference_test.py"))
    # conftest.py is of the installed package, which these do without.
    options = ["-q", "-rs", "-p", "no:cacheprovider", "--noconftest"]
    return pytest.main([*options, *tests, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
