#!/usr/bin/env python3
"""The command lines of the programs that measure a GPU. Nothing is measured, so no GPU is needed.

Usage: device_programs_test.py PROGRAM...
"""

import os
import re
import subprocess
import sys
import unittest

PROGRAMS = {}  # path by name without "sluice_cuda_", set from the command line

# As the documentation has them, or as files in bench/results/ were made.
COMMANDS = [
    "ablation --vocab 8192 --rows traces.f32",
    "bench --teams all --batch 1 --batch 128",
    "bench --vocab 151936 --dtype bfloat16 --distribution peaked --task sample --task mask-k10",
    "clusters --head 128256x1024 --kind planted --task k10 --clusters 2000",
    "head --head 128256x1024 --kind strict --few 2 --few 4 --batch 1",
    "head --energy 2 --task greedy",
    "head_soak --steps 1600 --batch 7 --kind strict --head 128256x1024",
    "patches --patches 0 --patches 1000 --dtype float32 --vocab 32000",
    "shard_parts --head 128256x8192 --ranks 2 --batch 1",
    "shards --ranks 4 --checked 100000",
    "step --task step-typical --task step-typical-0.9 --batch 256",
    "topk --columns 131072 --batch 64 --k 2048 --scores all --hint 44 --guess secant",
    "topk --plans all --blocks 8 --threads 512 --capacity 0 --dtype bfloat16 --guess threshold",
]


def run(name, *flags):
    return subprocess.run([PROGRAMS[name], *flags], timeout=60, stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8")


def flags_of(name):
    """Flags and what their values are, by --help."""
    return re.findall(r"^  (--[a-z]+) (N|NAME|FILE|VOCABxDIM)\b", run(name, "--help").stdout, re.M)


class DevicePrograms(unittest.TestCase):
    def test_help_tells_what_a_program_is_for_and_its_flags(self):
        for name in PROGRAMS:
            result = run(name, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""), name)
            self.assertIn(f"Usage: sluice_cuda_{name} [OPTIONS]", result.stdout)
            self.assertGreaterEqual(len(flags_of(name)), 2, name)

    def assert_refused(self, name, flags, *said):
        result = run(name, *flags)
        self.assertEqual((result.returncode, result.stdout), (2, ""), (name, flags))
        self.assertTrue(result.stderr.startswith(f"sluice_cuda_{name}: "), result.stderr)
        for words in said:
            self.assertIn(words, result.stderr)

    def test_a_flag_that_there_is_not_is_refused_with_those_that_there_are(self):
        for name in PROGRAMS:
            self.assert_refused(name, ["--no-such", "3"], '"--no-such"',
                                ", ".join(flag for flag, _ in flags_of(name)))

    def test_a_missing_value_is_refused_by_every_flag(self):
        for name in PROGRAMS:
            for flag, _ in flags_of(name):
                self.assert_refused(name, [flag], f"{flag} takes one value")

    def test_a_bad_value_is_refused_by_every_flag_with_what_is_allowed(self):
        for name in PROGRAMS:
            for flag, kind in flags_of(name):
                if kind != "FILE":
                    for value in ("no-such", "-1", "1e9"):
                        self.assert_refused(name, [flag, value], f'{flag} = "{value}"', "allowed: ")

    def test_documented_commands_are_understood(self):
        for command in COMMANDS:
            name, *flags = command.split()
            if name in PROGRAMS:
                result = run(name, *flags, "--help")  # looks at the flags, and runs nothing
                self.assertEqual((result.returncode, result.stderr), (0, ""), command)
                known = [flag for flag, _ in flags_of(name)]
                self.assertLessEqual({f for f in flags if f.startswith("--")}, set(known), command)

    def test_flags_that_exclude_each_other_are_refused(self):
        result = run("patches", "--vocab", "4096", "--patches", "5000")
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("--patches = 5000 is not allowed: [0, 4096]", result.stderr)


if __name__ == "__main__":
    PROGRAMS = {os.path.basename(path).removeprefix("sluice_cuda_"): os.path.abspath(path)
                for path in sys.argv[1:]}
    unittest.main(argv=sys.argv[:1])
