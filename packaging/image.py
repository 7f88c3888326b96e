#!/usr/bin/env python3
"""Writes an OCI image, as an archive that podman, docker and skopeo load, without any of them.

    image.py PROGRAM VERSION ARCHIVE

The image has the program, its licence files, libc's three files of this machine and a folder /tmp:
there is no shell and no package in it. One program gives one image, byte for byte: no time, no user
name is in it.
"""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
COMMAND = ["/sluice", "serve", "--host", "0.0.0.0", "--port", "8080"]
# The server's user: in no /etc/passwd, which the image lacks; it owns nothing.
USER = "65532:65532"


def libraries_of(program):
    """The paths of what the loader loads, itself included, as the program looks for them."""
    lines = subprocess.run(["ldd", program], capture_output=True, check=True,
                           encoding="utf-8").stdout.splitlines()
    words = [word for line in lines for word in line.split() if word.startswith("/")]
    return {word: Path(word).resolve().read_bytes() for word in words}


def layer(files):
    """A tar of {path: (mode, content)}; None is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            mode, content = files[path]
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mode = mode
            if content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def with_folders(files):
    folders = {str(parent): (0o755, None) for path in files for parent in Path(path).parents
               if str(parent) != "/"}
    return {**folders, **files}


def image_files(program, version, machine):
    """{path in the archive: content}, of the OCI image layout 1.0."""
    files = {"/sluice": (0o755, program.read_bytes()), "/tmp": (0o1777, None)}
    files |= {path: (0o755, content) for path, content in libraries_of(program).items()}
    for name in ("LICENSE", "NOTICES"):
        if (program.parent / name).exists():
            files[f"/licenses/{name}"] = (0o644, (program.parent / name).read_bytes())
    files["/licenses/libc6"] = (0o644, Path("/usr/share/doc/libc6/copyright").read_bytes())
    tar = layer(with_folders(files))
    blobs = {}

    def blob(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}",
                "size": len(content)}

    def text(value):
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    config = {
        "architecture": ARCHITECTURES[machine], "os": "linux",
        "config": {"Entrypoint": COMMAND, "User": USER, "ExposedPorts": {"8080/tcp": {}},
                   "StopSignal": "SIGTERM", "WorkingDir": "/",
                   "Labels": {"org.opencontainers.image.title": "sluice",
                              "org.opencontainers.image.version": version,
                              "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
    }
    manifest = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(text(config), "config.v1+json"),
        "layers": [blob(gzip.compress(tar, 9, mtime=0), "layer.v1.tar+gzip")],
    }
    described = blob(text(manifest), "manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    return {**blobs, "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
            "index.json": text({"schemaVersion": 2, "manifests": [described]})}


def main():
    program, version, archive = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    machine = subprocess.run(["uname", "-m"], capture_output=True, check=True,
                             encoding="utf-8").stdout.strip()
    content = layer({path: (0o644, data)
                     for path, data in image_files(program, version, machine).items()})
    archive.write_bytes(content)
    print(f"image: {archive}, {len(content) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
