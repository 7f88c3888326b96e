#!/usr/bin/env bash
# Builds the documentation site into build/docs/html, without a network; any warning is an error. The references of
# Python and of the command are those of BUILD, a built tree (build/release).
#   SLUICE_DOCS_REPOSITORY  an address that paths of the repository are appended to, for links to its files
set -euo pipefail
cd "$(dirname "$0")/.."

build=$PWD/build/docs
tree=$(realpath -m "${BUILD:-build/release}")
python=build/docs-venv/bin/python
package=$tree/python/package

say() { echo "docs: $*"; }
if ! command -v doxygen >/dev/null || ! "$python" -c 'import furo, myst_parser, sphinx_design' 2>/dev/null; then
  say "doxygen or Sphinx is missing: scripts/setup.sh docs" >&2
  exit 1
fi
[[ -x "$tree/sluice" ]] || say "no $tree/sluice, so the help of commands is left out: make demo builds it"
if [[ ! -f "$package/sluice/_sluice.pyi" ]]; then
  say "no $package, so the reference of Python is left out: CONTRIBUTING.md says how to build it"
  package=""
fi

mkdir -p "$build"
"$python" -B docs/site/stage.py . "$build" "$tree/sluice" "${package:-/nowhere}"
export SLUICE_DOCS_EXTRA=$build/extra SLUICE_DOCS_PACKAGE=$package
mkdir -p "$build/extra"
"$python" -B -m sphinx -q -W --keep-going -j auto -c docs/site -d "$build/doctrees" "$build/source" "$build/html"
say "build/docs/html/index.html, after $SECONDS s"
