#!/usr/bin/env bash
# Writes SHA256SUMS of the files of this version that are in a folder: files of older ones may lie there
# too. Usage: packaging/sums.sh FOLDER
set -euo pipefail
version=$(sed -n 's/^project(Sluice VERSION \([0-9.]*\).*/\1/p' "$(dirname "$0")/../CMakeLists.txt")
cd "${1:?a folder}"
find . -maxdepth 1 -type f -name "*-$version-*" -printf '%P\n' | LC_ALL=C sort | xargs -r sha256sum >SHA256SUMS
