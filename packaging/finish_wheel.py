#!/usr/bin/env python3
"""Makes a wheel for any Linux of one that was built on this: checks what its programs need, adds the
licences of what is linked into them, names the platform, and packs it again, byte for byte the same
each time.

Usage: finish_wheel.py WHEEL COPYRIGHTS FOLDER, with the Python that built it, which has nanobind

COPYRIGHTS is the folder `copyright` of packaging/static_libraries.sh.
"""

import base64
import hashlib
import os
import platform
import re
import sys
import tempfile
import time
import zipfile
from importlib import metadata
from pathlib import Path

import check_elf
import notices

PLATFORM = f"manylinux_{'_'.join(map(str, check_elf.NEWEST))}_{platform.machine()}"
RULE = "=" * 80


def is_program(name):
    return name.endswith(".so") or ".data/scripts/" in name


def nanobind_notices():
    """nanobind has no package of Debian; its hash map has its licence at the head of its file."""
    files = {str(file): file for file in metadata.files("nanobind")}
    licence = next(file for name, file in files.items() if name.endswith("licenses/LICENSE")).read_text()
    head = next(file for name, file in files.items() if name.endswith("tsl/robin_map.h")).read_text()
    head = re.sub(r"(?m)^ \*? ?", "", head[head.index("/**") + 3:head.index("*/")]).strip() + "\n"
    return "".join(f"\n{RULE}\n{name}\n{RULE}\n{text}"
                   for name, text in ((f"nanobind {metadata.version('nanobind')}", licence), ("robin-map", head)))


def tagged(about):
    """The file WHEEL, for the platform."""
    lines = [re.sub(r"^(Tag: \S+-\S+)-\S+$", rf"\1-{PLATFORM}", line) for line in about.splitlines()]
    return "\n".join(lines).rstrip("\n") + "\n"


def record(files):
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join(rows)


def finish(wheel, copyrights, folder):
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in sorted(archive.namelist()) if not name.endswith("/")}
    about = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/WHEEL"))
    version = about.removesuffix(".dist-info").rpartition("-")[2]
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in filter(is_program, files):
            program = Path(scratch) / Path(name).name
            program.write_bytes(files[name])
            faults += check_elf.faults(program)
            if name.endswith(".so"):
                notices.write(version, program, copyrights, Path(scratch))
        if faults:
            sys.exit("\n".join(faults))
        files[f"{about}/licenses/NOTICES"] = (Path(scratch) / "NOTICES").read_bytes() + nanobind_notices().encode()
        files[f"{about}/sboms/sluice.spdx.json"] = (Path(scratch) / "sluice.spdx.json").read_bytes()
    files[f"{about}/WHEEL"] = tagged(files[f"{about}/WHEEL"].decode()).encode()
    del files[f"{about}/RECORD"]
    files[f"{about}/RECORD"] = f"{record(files)}\n{about}/RECORD,,\n".encode()

    distribution, _, python, abi, _ = wheel.stem.split("-")
    finished = folder / f"{distribution}-{version}-{python}-{abi}-{PLATFORM}.whl"
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]  # zip begins in 1980
    with zipfile.ZipFile(finished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program(name) else 0o100644) << 16
            archive.writestr(entry, data)
    return finished


def main():
    wheel, copyrights, folder = map(Path, sys.argv[1:])
    finished = finish(wheel, copyrights, folder)
    with zipfile.ZipFile(finished) as archive:
        programs = [entry for entry in archive.infolist() if is_program(entry.filename)]
    print(f"{finished}: {finished.stat().st_size / 1e6:.2f} MB, with "
          + " and ".join(f"{Path(entry.filename).name} of {entry.compress_size / 1e6:.2f} MB" for entry in programs))


if __name__ == "__main__":
    main()
