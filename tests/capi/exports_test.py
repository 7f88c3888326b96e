"""The shared library exports the functions that the C headers declare, all of them and nothing else,
and those of the list of the release. A name that leaves the list breaks programs that were linked before.

    exports_test.py NM LIBRARY INCLUDE_DIRECTORY LIST            compares
    exports_test.py NM LIBRARY INCLUDE_DIRECTORY LIST --write    writes the list
"""

import re
import subprocess
import sys
from pathlib import Path

DECLARED = re.compile(r"^SLUICE_API\s[^;(]*?\b(sluice_\w+)\(", re.MULTILINE)


def main() -> int:
    nm, library, include, listed = sys.argv[1:5]
    declared = set()
    for header in Path(include).rglob("*.h"):
        declared.update(DECLARED.findall(header.read_text(encoding="utf-8")))
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    print(f"{len(declared)} declared, {len(exported)} exported")
    for name in sorted(declared ^ exported):
        print(f"{name}: {'not exported' if name in declared else 'not declared'}")
    if sys.argv[5:] == ["--write"]:
        Path(listed).write_text("".join(f"{name}\n" for name in sorted(exported)), encoding="utf-8")
    known = set(Path(listed).read_text(encoding="utf-8").split())
    for name in sorted(known - exported):
        print(f"{name}: removed since the list; a removal needs another ABI number and a major version")
    for name in sorted(exported - known):
        print(f"{name}: not in the list; --write adds it, which needs a minor version")
    return 1 if not declared or not declared == exported == known else 0


if __name__ == "__main__":
    sys.exit(main())
