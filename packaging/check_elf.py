#!/usr/bin/env python3
"""Says what keeps a program or a library from running on any Linux with glibc 2.34: a library that
it needs and libc does not bring, or a symbol that is newer. Exit code 1 where something does.

Usage: check_elf.py FILE...
"""

import re
import subprocess
import sys

NEWEST = (2, 34)
OF_LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def objdump(flag, file):
    return subprocess.run(["objdump", flag, str(file)], capture_output=True, check=True,
                          encoding="utf-8").stdout


def faults(file):
    needed = set(re.findall(r"^ *NEEDED +(\S+)$", objdump("-p", file), re.MULTILINE))
    found = [f"{file} needs {name}, which is not of libc" for name in sorted(needed - OF_LIBC)]
    for version, name in re.findall(r"\*UND\*.*?\(?GLIBC_([\d.]+)\)? +(\S+)$", objdump("-T", file),
                                    re.MULTILINE):
        if tuple(map(int, version.split("."))) > NEWEST:
            found.append(f"{file} needs {name} of glibc {version}; the newest may be "
                         f"{'.'.join(map(str, NEWEST))}")
    return found


def main():
    found = [fault for file in sys.argv[1:] for fault in faults(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
