#!/usr/bin/env python3
"""Every test that tests/server/README.md and docs/notes/outside-check.md name is there.

Usage: faults_test.py ROOT
"""

import re
import sys
from pathlib import Path


def main():
    root = Path(sys.argv[1])
    tests = root / "tests"
    text = (tests / "server/README.md").read_text(encoding="utf-8")
    there = set()
    for file in tests.rglob("*_test.cc"):
        there |= {f"{suite}.{name}" for suite, name in re.findall(
            r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", file.read_text(encoding="utf-8"), re.MULTILINE)}
    for file in [*tests.rglob("*_test.py"), *tests.rglob("test_*.py")]:
        there |= {f"{file.name}::{name}" for name in re.findall(
            r"def (test_\w+)\(", file.read_text(encoding="utf-8"))}
    rows = re.findall(r"^\| F(\d+) \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    wrong = [f"F{i} has {len([n for n, _ in rows if int(n) == i])} rows" for i in range(1, 31)
             if [int(n) for n, _ in rows].count(i) != 1]
    for number, shown in rows:
        names = set(re.findall(r"`(\w+\.\w+|\w+\.py::\w+)`", shown))
        wrong += [f"F{number}: there is no {name}" for name in sorted(names - there)]
        wrong += [] if names else [f"F{number}: names no test"]
    named = re.findall(r"`([A-Z]\w+\.[A-Z]\w+|\w+\.py::\w+)`",
                       (root / "docs/notes/outside-check.md").read_text(encoding="utf-8"))
    wrong += [f"outside-check.md: there is no {name}" for name in sorted(set(named) - there)]
    wrong += [] if named else ["outside-check.md: names no test"]
    print("\n".join(wrong) or f"{len(rows)} faults, {len(named)} names of tests, every test is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
