"""The shared library exports the functions that the C headers declare, all of them and nothing else.

    exports_test.py NM LIBRARY INCLUDE_DIRECTORY
"""

import re
import subprocess
import sys
from pathlib import Path

DECLARED = re.compile(r"^SLUICE_API\s[^;(]*?\b(sluice_\w+)\(", re.MULTILINE)


def main() -> int:
    nm, library, include = sys.argv[1:]
    declared = set()
    for header in Path(include).rglob("*.h"):
        declared.update(DECLARED.findall(header.read_text(encoding="utf-8")))
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    print(f"{len(declared)} declared, {len(exported)} exported")
    for name in sorted(declared ^ exported):
        print(f"{name}: {'not exported' if name in declared else 'not declared'}")
    return 1 if not declared or declared != exported else 0


if __name__ == "__main__":
    sys.exit(main())
