"""Why the extension of this package does not load, in a sentence that says what to do. Imported then alone."""

import os
import platform
import re
from importlib.machinery import EXTENSION_SUFFIXES

MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}  # of ELF
BUILD = "`pip install .` in a clone of Sluice builds one"


def extensions(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("_sluice.") and name.endswith((".so", ".pyd")))


def machine_of(path):
    """The architecture that a file is for."""
    with open(path, "rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    code = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return MACHINES.get(code, f"the ELF machine {code}")


def explain(error, folder):
    """What the ImportError of `sluice._sluice` in `folder` means."""
    found = extensions(folder)
    here = f"Python {platform.python_version()} on {platform.machine()}"
    usable = [name for name in found if name.removeprefix("_sluice") in EXTENSION_SUFFIXES]
    if not found:
        return f"sluice has no extension in {folder}: {BUILD}"
    if not usable:
        return f"sluice was built for another Python ({', '.join(found)}) and this is {here}: install a wheel for it, or build one; {BUILD}"
    built_for = machine_of(os.path.join(folder, usable[0]))
    if built_for is None:
        return f"{os.path.join(folder, usable[0])} is damaged: install sluice again"
    if built_for != platform.machine():
        return f"sluice was built for {built_for} and this is {here}: install a wheel for it; {BUILD}"
    if newest := re.findall(r"version `GLIBC_([\d.]+)' not found", str(error)):
        has = " ".join(platform.libc_ver()).strip() or "another C library"
        return f"sluice needs glibc {newest[-1]} or newer and this system has {has}: take a newer system, or build the package on this one; {BUILD}"
    if missing := re.match(r"(\S+): cannot open shared object file", str(error)):
        return (f"sluice was built with {missing[1]}, which this machine does not have: install that library, or a wheel of a "
                f"release, which needs none; {BUILD}")
    return f"the extension of sluice does not load ({error}); {BUILD}"
