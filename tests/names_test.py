#!/usr/bin/env python3
"""No test is lost by accident: compares the names of all tests of a build with tests/all_tests.txt.

    names_test.py LIST CTEST BUILD [--complete]   compares
    names_test.py --write LIST < NAMES            writes the list; `make test-names` does

Names of a vector backend of the CPU stand for all of them. A build that lacks optional packages has
fewer tests: without --complete, only executables that it has are compared. Tests for a GPU are not
in the list, because a machine without CUDA cannot list them; fuzz targets are, and no other build
than that with clang has them.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path


def general(name):
    return re.sub(r"/cpu_[a-z0-9]+(?=_|$)", "/cpu_*", name)


def names_of(build, ctest):
    """ctest writes a log where it starts, and one that runs all tests is at work in BUILD."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "CTestTestfile.cmake")
        file.write_text(f'subdirs("{Path(build).resolve()}")\n', encoding="utf-8")
        listed = subprocess.run([ctest, "-N", "-LE", "cuda"], cwd=folder, capture_output=True,
                                encoding="utf-8", check=True).stdout
    return {general(name) for name in re.findall(r"^ *Test *#\d+: (.*)$", listed, re.MULTILINE)}


def suite(name):
    return name.split(".")[0]


def is_of_executable(name):
    return name.split(".")[0].endswith("_test")


def compare(listed, names, is_complete):
    """(lost, new), both sorted."""
    has_vectors = any("/cpu_*" in name for name in names)
    suites = {suite(name) for name in names}

    def is_expected(name):
        if name.endswith("_fuzz") or ("/cpu_*" in name and not has_vectors):
            return False
        return is_complete or (is_of_executable(name) and suite(name) in suites)

    return sorted(name for name in listed - names if is_expected(name)), sorted(names - listed)


def main():
    if sys.argv[1] == "--write":
        names = {general(line.strip()) for line in sys.stdin if line.strip()}
        Path(sys.argv[2]).write_text("".join(f"{n}\n" for n in sorted(names)), encoding="utf-8")
        print(f"{len(names)} names are in {sys.argv[2]}", file=sys.stderr)
        return 0
    listed = set(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    lost, new = compare(listed, names_of(sys.argv[3], sys.argv[2]), "--complete" in sys.argv)
    for what, names in (("lost", lost), ("not in the list", new)):
        for name in names:
            print(f"{what}: {name}")
    if lost or new:
        print(f"{len(lost)} tests of {sys.argv[1]} are lost, and {len(new)} are not in it; where that "
              "is meant, `make test-names` writes it")
    return 1 if lost or new else 0


if __name__ == "__main__":
    sys.exit(main())
