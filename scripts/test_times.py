#!/usr/bin/env python3
"""Prints where the time of the tests went: the phases of scripts/test.sh, and the slowest tests.

    test_times.py PHASES...                  files of build/times, one line a phase
    test_times.py --at-most 1200 PHASES...   fails when the phases took more seconds of CPU

Seconds of CPU do not depend on what else the machine does; ctest has the seconds of the clock alone,
in the ctest_*.xml of each preset.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SLOWEST = 20


def phases_of(path):
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, seconds, cpu = line.split("\t")
        yield name, int(seconds), int(cpu)


def tests_of(phase, build):
    """(seconds, phase, name) of each test of a phase that ran tests."""
    preset, _, what = phase.partition(": ")
    path = build / preset / f"ctest_{what}.xml"
    if not path.exists():
        return
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        yield float(case.get("time", 0)), phase, case.get("name")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at-most", type=int, metavar="SECONDS", help="of CPU")
    parser.add_argument("--build", type=Path, default=Path("build"), help="(%(default)s)")
    parser.add_argument("phases", nargs="+")
    arguments = parser.parse_args()

    phases = [phase for path in arguments.phases for phase in phases_of(path)]
    total = sum(cpu for _, _, cpu in phases)
    for name, seconds, cpu in phases:
        print(f"time: {name}: {seconds} s, {cpu} s of CPU")
    print(f"time: together: {sum(seconds for _, seconds, _ in phases)} s, {total} s of CPU")

    tests = [test for name, _, _ in phases for test in tests_of(name, arguments.build)]
    for seconds, phase, name in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"slow: {seconds:6.1f} s  {phase}: {name}")
    if arguments.at_most is not None and total > arguments.at_most:
        print(f"test_times: {total} s of CPU are more than the {arguments.at_most} s that are allowed",
              file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
