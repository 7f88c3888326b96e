#!/usr/bin/env bash
# Checks the formatting of every C++ and CUDA file that git has or would add (--fix applies it), and
# the words of comments and messages (scripts/lint_words.py).
# Formatting changes from one release of clang-format to the next, hence exactly 19.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
[[ "${1:-}" != --fix ]] || mode=(-i)

clang_format=
for candidate in clang-format-19 clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q 'version 19\.'; then
    clang_format=$candidate
    break
  fi
done
if [[ -z "$clang_format" ]]; then
  echo "lint: clang-format 19 not found; scripts/setup.sh lint installs it" >&2
  exit 1
fi

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- \
  '*.h' '*.hpp' '*.cc' '*.cu' '*.cuh' '*.c')
[[ ${#files[@]} == 0 ]] || "$clang_format" "${mode[@]}" "${files[@]}"
echo "lint: ${#files[@]} files formatted"
python3 -B scripts/lint_words.py
