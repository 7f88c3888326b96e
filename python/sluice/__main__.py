"""``python -m sluice ARGUMENTS`` runs the command ``sluice`` that is on the PATH."""

import os
import shutil
import sys


def main():
    program = shutil.which("sluice")
    if program is None:
        sys.exit("sluice: no command sluice on the PATH: the Python package has the library alone, and "
                 "`make release` or `make demo` builds the command")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
