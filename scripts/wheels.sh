#!/usr/bin/env bash
# Builds the wheels sluice-llm into dist/, for any Linux with glibc 2.34: the extension and the command
# with all libraries inside, without CUDA and without the built-in model. Usage:
#
#   scripts/wheels.sh [PYTHON]    a Python from 3.12 on; default: the newest on the PATH
#
# One wheel is for the Python of build/python-venv, 3.11, and one with the stable ABI for 3.12 and newer.
set -euo pipefail
cd "$(dirname "$0")/.."

started=$SECONDS
say() { echo "wheels: $* ($((SECONDS - started)) s)" >&2; }
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

# An environment with what builds, for a Python of the machine.
environment_of() {
  local python=$1 venv
  venv=build/wheel-venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if ! "$venv/bin/python" -c 'import nanobind, numpy, scikit_build_core' 2>/dev/null; then
    say "making $venv with pip"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q --only-binary :all: 'nanobind>=3,<4' 'scikit-build-core>=0.10' 'numpy>=1.25' >&2
  fi
  echo "$venv/bin/python"
}

pythons=(build/python-venv/bin/python)
newest=("$@")
if [[ ${#newest[@]} -eq 0 ]]; then
  for version in 3.14 3.13 3.12; do
    # The command of a version manager may say that there is no such Python.
    if "python$version" -c 'import venv' 2>/dev/null; then newest+=("python$version") && break; fi
  done
  [[ ${#newest[@]} -gt 0 ]] || say "no wheel for 3.12 and newer, because no such Python is on the PATH"
fi
for python in "${newest[@]}"; do
  pythons+=("$(environment_of "$python")")
done

say "the libraries to link in, from Debian's sources"
packaging/static_libraries.sh build/static
mkdir -p dist
for python in "${pythons[@]}"; do
  say "$("$python" --version)"
  rm -rf build/wheels
  "$python" -m pip wheel -q --no-deps --no-build-isolation --no-index -Cbuild-dir=build/static-wheels \
    -Ccmake.define.SLUICE_CUDA=OFF -Ccmake.define.SLUICE_BUILD_CLI=ON -Ccmake.define.SLUICE_EMBED_MODEL=OFF \
    -Ccmake.define.SLUICE_STATIC_LIBRARIES="$PWD/build/static" \
    "-Cbuild.targets=_sluice;sluice_python_stub;sluice" -w build/wheels .
  "$python" packaging/finish_wheel.py build/wheels/*.whl build/static/copyright dist
done
packaging/sums.sh dist
say "done"
