#!/usr/bin/env bash
# Installs the Debian 12 packages that a build needs and this machine lacks; silent when none is
# missing. Usage: scripts/setup.sh GROUP...   with the groups build, test and lint.
set -euo pipefail

say() { echo "setup: $*" >&2; }

# packages_of GROUP: one line a package, with what it is for.
packages_of() {
  case "$1" in
    build)
      echo "build-essential     C++20 compiler"
      echo "cmake               build system"
      echo "ninja-build         build system"
      echo "libhwy-dev          vectors of the CPU backend"
      echo "libcli11-dev        command line of the program sluice"
      echo "libsimdjson-dev     parameters as JSON"
      ;;
    test)
      echo "libgtest-dev        unit tests"
      echo "pkg-config          test of the installed package"
      echo "python3             test of the include rules"
      echo "clang               fuzz tests"
      echo "libclang-rt-14-dev  fuzz tests: libFuzzer and the sanitizers"
      ;;
    lint)
      echo "clang-format-19     formatting"
      ;;
    *)
      say "unknown group '$1': build, test or lint"
      return 2
      ;;
  esac
}

wanted=""
for group in "$@"; do
  wanted+=$(packages_of "$group")$'\n'
done

if ! command -v dpkg-query >/dev/null; then
  say "this is not Debian, so nothing is installed; the build needs:"
  echo "$wanted" >&2
  exit 0
fi

missing=()
while read -r package purpose; do
  [[ -n "$package" ]] || continue
  if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
    say "missing: $package ($purpose)"
    missing+=("$package")
  fi
done <<<"$wanted"
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ "$(id -u)" == 0 ]]; then
  as_root=()
elif command -v sudo >/dev/null; then
  as_root=(sudo)
else
  say "cannot install them: neither root nor sudo. As root, run:"
  say "  apt-get install --no-install-recommends ${missing[*]}"
  exit 1
fi

say "installing ${#missing[@]} packages with apt-get"
# Through env, because sudo does not pass the caller's environment on.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
{
  "${apt[@]}" update
  "${apt[@]}" install --no-install-recommends "${missing[@]}"
} </dev/null >&2 || {
  say "apt-get failed; the lines above say why"
  exit 1
}
say "done in ${SECONDS} s"
