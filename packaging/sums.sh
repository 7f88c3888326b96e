#!/usr/bin/env bash
# Writes SHA256SUMS of the files of a release that are in a folder. Usage: packaging/sums.sh FOLDER
set -euo pipefail
cd "${1:?a folder}"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -r sha256sum >SHA256SUMS
