#!/usr/bin/env python3
"""Writes what a release says about the software that is linked into it: the licences (NOTICES, from
Debian's copyright files) and the bill of materials (SPDX 2.3 as JSON).

Usage: notices.py VERSION PROGRAM COPYRIGHTS FOLDER

COPYRIGHTS is the folder `copyright` of packaging/static_libraries.sh. The time in the bill is
SOURCE_DATE_EPOCH, so that one source gives one bill.
"""

import datetime
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

# What is linked in: its copyright file, the Debian package that it came from, its licence. libstdc++
# and libgcc carry the exception that lets a program of any licence have them inside.
PARTS = [
    ("boost", "libboost1.74-dev", "BSL-1.0"),
    ("cli11", "libcli11-dev", "BSD-3-Clause"),
    ("cppzmq", "cppzmq-dev", "MIT"),
    ("gcc-12", "libstdc++-12-dev", "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ("highway", "libhwy-dev", "Apache-2.0"),
    ("msgpack-cxx", "libmsgpack-cxx-dev", "BSL-1.0"),
    ("pcre2", "libpcre2-dev", "BSD-3-Clause"),
    ("prometheus-cpp", "prometheus-cpp-dev", "MIT"),
    ("simdjson", "libsimdjson-dev", "Apache-2.0"),
    ("utf8proc", "libutf8proc-dev", "MIT"),
    ("zeromq3", "libzmq3-dev", "LGPL-3.0-or-later WITH LGPL-3.0-linking-exception"),
]


def version_of(package):
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                          check=True, encoding="utf-8").stdout


def notices(copyrights):
    files = {path.name for path in copyrights.iterdir()}
    named = {name for name, _, _ in PARTS}
    if files != named:
        sys.exit(f"notices: {copyrights} has {sorted(files)}, and {sorted(named)} is linked in")
    rule = "=" * 80
    return "The program contains the following software.\n" + "".join(
        f"\n{rule}\n{name} {version_of(package)}\n{rule}\n"
        + (copyrights / name).read_text(encoding="utf-8") for name, package, _ in PARTS)


def bill(version, program):
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.UTC)

    def package(name, number, licence, **more):
        return {"SPDXID": f"SPDXRef-{name}", "name": name, "versionInfo": number,
                "downloadLocation": "NOASSERTION", "licenseConcluded": licence,
                "licenseDeclared": licence, "copyrightText": "NOASSERTION", **more}

    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"sluice-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/sluice-{version}-{digest}",
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: packaging/notices.py"]},
        "packages": [
            package("sluice", version, "Apache-2.0", filesAnalyzed=False,
                    checksums=[{"algorithm": "SHA256", "checksumValue": digest}]),
            *(package(name, version_of(debian), licence, filesAnalyzed=False,
                      externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                     "referenceLocator":
                                         f"pkg:deb/debian/{debian}@{version_of(debian)}"}])
              for name, debian, licence in PARTS)],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
             "relatedSpdxElement": "SPDXRef-sluice"},
            *({"spdxElementId": "SPDXRef-sluice", "relationshipType": "STATIC_LINK",
               "relatedSpdxElement": f"SPDXRef-{name}"} for name, _, _ in PARTS)],
    }


def write(version, program, copyrights, folder):
    (folder / "NOTICES").write_text(notices(copyrights), encoding="utf-8")
    (folder / "sluice.spdx.json").write_text(
        json.dumps(bill(version, program), indent=1) + "\n", encoding="utf-8")


def main():
    version, program, copyrights, folder = sys.argv[1], *map(Path, sys.argv[2:])
    write(version, program, copyrights, folder)


if __name__ == "__main__":
    main()
