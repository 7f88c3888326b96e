#!/usr/bin/env bash
# Builds dist/sluice-VERSION-linux-x86_64.tar.gz: the command as one file that needs libc alone, with
# completions, man pages, licences and a bill of materials. Usage: scripts/release.sh
set -euo pipefail
cd "$(dirname "$0")/.."

started=$SECONDS
say() { echo "release: $* ($((SECONDS - started)) s)" >&2; }
version=$(sed -n 's/^project(Sluice VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name="sluice-$version-linux-$(uname -m)"
build=build/static-release
folder=$build/$name
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

say "the libraries to link in, from Debian's sources"
packaging/static_libraries.sh build/static

say "the command"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_CUDA=OFF -DSLUICE_BUILD_TESTS=OFF \
  -DSLUICE_BUILD_EXAMPLES=OFF -DSLUICE_STATIC_LIBRARIES="$PWD/build/static" >"$build.log"
cmake --build "$build" --target sluice

rm -rf "$folder"
mkdir -p "$folder/completions" dist
cp "$build/sluice" LICENSE "$folder/"
cp models/default/LICENSE "$folder/LICENSE.model"
packaging/check_elf.py "$folder/sluice"

say "completions, man pages, licences"
"$folder/sluice" completion bash >"$folder/completions/sluice.bash"
"$folder/sluice" completion zsh >"$folder/completions/_sluice"
"$folder/sluice" completion fish >"$folder/completions/sluice.fish"
packaging/man_pages.py "$folder/sluice" "$folder/man/man1"
packaging/notices.py "$version" "$folder/sluice" build/static/copyright "$folder"

# One source gives one archive, byte for byte: no user, no time of today, one order.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$build" -cf - "$name" |
  gzip -9n >"dist/$name.tar.gz"
packaging/sums.sh dist
say "dist/$name.tar.gz, $(du -h "dist/$name.tar.gz" | cut -f1)"
