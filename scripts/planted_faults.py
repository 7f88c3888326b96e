#!/usr/bin/env python3
"""Plants the faults of tests/planted/faults.toml, and shows which tests of `make test` find them.

    planted_faults.py --check                    each fault still fits the source; nothing is built
    planted_faults.py [NAME...] [--json FILE]    plants one after the other; all, without a name
    planted_faults.py --table FILE               prints what --json wrote, for a page

A copy of the source in build/planted is built as the preset release is, and only the targets that
the faults name. Without a fault their tests have to pass; with one, at least one has to fail. Fails
when a fault no longer fits the source, is found by no test, or does not compile.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

try:
    import tomllib
except ImportError:
    print("planted_faults: skipped, Python is older than 3.11", file=sys.stderr)
    sys.exit(77)

SOURCE = Path(__file__).resolve().parent.parent
FAULTS = SOURCE / "tests/planted/faults.toml"
COPY = SOURCE / "build/planted"
BUILD = COPY / "build/release"


def fail(message):
    sys.exit(f"planted_faults: {message}")


def read_faults(names):
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    unknown = set(names) - {fault["name"] for fault in faults}
    if unknown:
        fail(f"{', '.join(sorted(unknown))} is no fault of {FAULTS.relative_to(SOURCE)}, which has "
             + ", ".join(fault["name"] for fault in faults))
    return [fault for fault in faults if not names or fault["name"] in names]


def misfits(faults, tests):
    """Why a fault cannot be planted, a line each. tests: the names that make test has."""
    for fault in faults:
        path = SOURCE / fault["file"]
        count = path.read_text(encoding="utf-8").count(fault["old"]) if path.exists() else 0
        if count != 1:
            yield (f"{fault['name']}: {fault['file']} has {fault['old'].strip()!r} {count} times "
                   "instead of once: bring tests/planted/faults.toml up to date")
        if not any(re.search(fault["tests"], test) for test in tests):
            yield f"{fault['name']}: no test of tests/all_tests.txt matches {fault['tests']}"


def copy_source():
    """Only what has changed, so that a second run builds little."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=SOURCE,
                            capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, listed):
        original, copy = SOURCE / name, COPY / name
        if not original.is_file():
            copy.unlink(missing_ok=True)
        elif not copy.is_file() or copy.read_bytes() != original.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original, copy)
    (COPY / "build").mkdir(exist_ok=True)
    for name in ("python-venv", "python-wheels"):  # the grammar engine is in one of them
        if (SOURCE / "build" / name).exists() and not (COPY / "build" / name).exists():
            (COPY / "build" / name).symlink_to(SOURCE / "build" / name)


def run(command, log):
    """Whether it ended well."""
    with open(COPY / "build" / log, "w", encoding="utf-8") as output:
        environment = dict(os.environ, CCACHE_BASEDIR=str(COPY), CCACHE_NOHASHDIR="1")
        return subprocess.run(command, cwd=COPY, env=environment, stdout=output,
                              stderr=subprocess.STDOUT, check=False).returncode == 0


def need(command, log, what):
    if not run(command, log):
        lines = (COPY / "build" / log).read_text(encoding="utf-8").splitlines()
        fail(f"{what}:\n" + "\n".join(lines[-30:]))


def build(targets, what):
    need(["cmake", "--build", "build/release", "--target", *targets], "build.log", what)


def run_tests(pattern):
    """(names of the tests that ran, of those that failed)"""
    report = BUILD / "planted.xml"
    report.unlink(missing_ok=True)
    run(["ctest", "--test-dir", "build/release", "-R", pattern, "-LE", "slow", "-j",
         str(os.cpu_count()), "--output-junit", report], "ctest.log")
    if not report.exists():
        fail(f"ctest wrote no report of {pattern}; {COPY}/build/ctest.log says why")
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    ran = [case.get("name") for case in cases if case.get("status") in ("run", "fail")]
    failed = [case.get("name") for case in cases if case.get("status") == "fail"]
    return ran, sorted(failed)


def plant(fault):
    """The fault's row of the table."""
    path = COPY / fault["file"]
    original = path.read_text(encoding="utf-8")
    begin = time.monotonic()
    path.write_text(original.replace(fault["old"], fault["new"]), encoding="utf-8")
    try:
        build(fault["targets"], f"with {fault['name']} it does not compile")
        ran, failed = run_tests(fault["tests"])
    finally:
        path.write_text(original, encoding="utf-8")
    return {"name": fault["name"], "subsystem": fault["subsystem"], "what": fault["what"],
            "file": fault["file"], "ran": len(ran), "failed": failed,
            "seconds": round(time.monotonic() - begin)}


def tests_by_executable(tests):
    counts = {}
    for test in tests:
        name = test.split(".")[0]
        counts[name] = counts.get(name, 0) + 1
    return counts


def print_table(path):
    report = json.loads(path.read_text(encoding="utf-8"))
    print("| subsystem | the fault is that | found by |\n|---|---|---|")
    for row in report["faults"]:
        found = ", ".join(f"`{name}` ({count})" if count > 1 else f"`{name}`"
                          for name, count in sorted(tests_by_executable(row["failed"]).items()))
        print(f"| {row['subsystem']} | {row['what']} | {found} |")


def state_of_source():
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=SOURCE, capture_output=True, check=True,
                              encoding="utf-8").stdout.strip()
    return git("rev-parse", "HEAD"), git("status", "--porcelain", "--", "src", "include") == ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a fault; none: all")
    parser.add_argument("--check", action="store_true", help="build nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print its table as Markdown")
    arguments = parser.parse_args()
    if arguments.table:
        print_table(arguments.table)
        return

    faults = read_faults(arguments.names)
    tests = (SOURCE / "tests/all_tests.txt").read_text(encoding="utf-8").split("\n")
    misfitting = list(misfits(faults, tests))
    if misfitting:
        fail("\n".join(misfitting))
    if arguments.check:
        print(f"{len(faults)} faults fit the source")
        return

    commit, is_clean = state_of_source()
    copy_source()
    need(["cmake", "--preset", "release"], "configure.log", "it does not configure")
    build(sorted({target for fault in faults for target in fault["targets"]}), "it does not build")
    for fault in faults:
        ran, failed = run_tests(fault["tests"])
        if failed or not ran:
            fail(f"without a fault {', '.join(failed) or 'no test'} of {fault['tests']} "
                 + ("fails" if failed else "runs"))

    rows = []
    for fault in faults:
        rows.append(plant(fault))
        row = rows[-1]
        found = ", ".join(f"{name} ({count})" for name, count in
                          sorted(tests_by_executable(row["failed"]).items())) or "NOT FOUND"
        print(f"{row['subsystem']}: {row['what']}\n  {row['file']}: {found}, of {row['ran']} tests, "
              f"{row['seconds']} s", flush=True)
    if arguments.json:
        report = {"commit": commit, "clean": is_clean, "faults": rows}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    missed = [row["name"] for row in rows if not row["failed"]]
    if missed:
        fail(f"no test found {', '.join(missed)}")


if __name__ == "__main__":
    main()
