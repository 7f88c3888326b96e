#!/usr/bin/env bash
# Builds the archives that `make release` and `make wheels` link in and that Debian has as shared
# libraries alone, or with more in them than Sluice needs, from Debian's source packages:
#
#   packaging/static_libraries.sh FOLDER        archives in FOLDER/lib, copyright files in FOLDER/copyright
#
# The headers stay those of the installed -dev packages, so that a release compiles exactly what the
# preset release compiles; the sources are therefore of the same versions. Nothing is compiled twice.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "static libraries: $*" >&2; }
folder=${1:?a folder for the archives}
mkdir -p "$folder"/{lib,copyright,source,objects,apt/lists/partial,apt/cache/archives/partial}
folder=$(cd "$folder" && pwd)
system=/usr/lib/$(gcc -print-multiarch)

# source PACKAGE: its folder under FOLDER/source, unpacked with Debian's patches.
source_of() {
  local package=$1 list="$folder/apt/sources.list"
  local apt=(apt-get -q -o "Dir::Etc::sourcelist=$list" -o Dir::Etc::sourceparts=-
             -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache")
  if [[ ! -d "$folder/source/$package" ]]; then
    if [[ ! -f "$list" ]]; then
      echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian bookworm main" >"$list"
      "${apt[@]}" update >&2
    fi
    (cd "$folder/apt" && "${apt[@]}" source --download-only "$package" >&2 &&
      dpkg-source --no-check -x "${package}"_*.dsc "$folder/source/$package.part" >&2)
    mv "$folder/source/$package.part" "$folder/source/$package"
  fi
  cp "$folder/source/$package/debian/copyright" "$folder/copyright/$package"
}

# archive NAME FLAGS... -- SOURCES...: FOLDER/lib/libNAME.a
archive() {
  local name=$1 flags=() launcher compiler objects=() started=$SECONDS source object
  shift
  while [[ "$1" != -- ]]; do flags+=("$1") && shift; done
  shift
  [[ ! -f "$folder/lib/lib$name.a" ]] || return 0
  IFS=';' read -r -a launcher <<<"${CMAKE_CXX_COMPILER_LAUNCHER:-}"
  mkdir -p "$folder/objects/$name"
  for source in "$@"; do
    object="$folder/objects/$name/$(basename "$source").o"
    objects+=("$object")
    [[ -f "$object" ]] || "${launcher[@]}" "${CXX:-g++}" -O2 -DNDEBUG -fPIC -w "${flags[@]}" \
      -c "$source" -o "$object"
    printf '\rstatic libraries: lib%s.a, %d of %d files' "$name" "${#objects[@]}" "$#" >&2
  done
  ar rcsD "$folder/lib/lib$name.a.part" "${objects[@]}"
  mv "$folder/lib/lib$name.a.part" "$folder/lib/lib$name.a"
  printf ', %d s\n' $((SECONDS - started)) >&2
}

source_of zeromq3
# Debian's libzmq.a needs sodium, norm, pgm and krb5; sockets between processes need none of them.
zmq=$folder/source/zeromq3/src
cp packaging/zeromq_platform.hpp "$zmq/platform.hpp"
shopt -s extglob
archive zmq -std=c++11 -D_GNU_SOURCE -DZMQ_CUSTOM_PLATFORM_HPP -I"$zmq" -- "$zmq"/!(ws_*|wss_*|norm_*|pgm_*|gssapi_*).cpp

source_of simdjson
archive simdjson -std=c++17 -DSIMDJSON_THREADS_ENABLED=1 -I"$folder/source/simdjson/include" \
  -I"$folder/source/simdjson/src" -- "$folder/source/simdjson/src/simdjson.cpp"

source_of prometheus-cpp
prometheus=$folder/source/prometheus-cpp/core
mkdir -p "$folder/objects/include/prometheus/detail"
cp /usr/include/prometheus/detail/core_export.h "$folder/objects/include/prometheus/detail/"
archive prometheus-cpp-core -std=c++11 -I"$prometheus/include" -I"$prometheus/src" -I"$folder/objects/include" \
  -- "$prometheus"/src/*.cc "$prometheus"/src/detail/*.cc

for library in pcre2-8 utf8proc; do
  cp "$system/lib$library.a" "$folder/lib/"
done
cp /usr/share/doc/libpcre2-dev/copyright "$folder/copyright/pcre2"
cp /usr/share/doc/libutf8proc-dev/copyright "$folder/copyright/utf8proc"
# Headers alone, and the compiler's own runtime, are linked in as well.
cp /usr/share/doc/libhwy-dev/copyright "$folder/copyright/highway"
cp /usr/share/doc/libcli11-dev/copyright "$folder/copyright/cli11"
cp /usr/share/doc/cppzmq-dev/copyright "$folder/copyright/cppzmq"
cp /usr/share/doc/libmsgpack-cxx-dev/copyright "$folder/copyright/msgpack-cxx"
cp /usr/share/doc/libboost1.74-dev/copyright "$folder/copyright/boost"
cp /usr/share/doc/libstdc++-12-dev/copyright "$folder/copyright/gcc-12"
say "$(ls "$folder/lib" | tr '\n' ' ')in $folder/lib"
