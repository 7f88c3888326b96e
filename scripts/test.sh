#!/usr/bin/env bash
# Builds and runs every test that this machine can run; scripts/setup.sh has been here before.
# What fails stops nothing else: its last lines come again at the end, where a log that was cut still
# has them, and the exit code tells. Says what it skips and why. The last lines are ctest's own
# closing lines; the release build's is the very last.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/compiler_cache.sh

readonly LAST_LINES=30  # of what failed
closing_lines=()
skipped=()
failed=()
times=()

# has_failed WHAT: on standard input, what it printed.
has_failed() {
  failed+=("$1")
  printf '\n== failed: %s\n' "$1"
  tail -n "$LAST_LINES"
} >>"$failures"

# output_of TEST LOG: ctest's log of everything has it between two lines.
output_of() {
  awk -v test="$1" '
    $2 == "Testing:" { is_its = $0 == $1 " Testing: " test }
    is_its && /^<end of output>$/ { exit }
    is_output { print }
    is_its && /^-+$/ { is_output = 1 }' "$2" | tr -d '\0'
}

run_preset() {
  local preset=$1 folder="build/$1" begin=$SECONDS built name
  local ran="$folder/Testing/Temporary"
  echo "== $preset"
  # No two presets with a sanitizer have an object in common, so ccache need not preprocess a file to
  # find out: some 5 % of the time to compile it.
  case "$preset" in
    asan | tsan | fuzz) export CCACHE_DEPEND=1 ;;
    *) unset CCACHE_DEPEND ;;
  esac
  mkdir -p "$folder"
  rm -f "$ran/LastTestsFailed.log"
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; } 2>&1 |
    tee "$folder/build.log"; then
    has_failed "$preset: it does not build" <"$folder/build.log"
    return
  fi
  built=$SECONDS
  if ! ctest --preset "$preset" -j "$(nproc)" 2>&1 | tee "$folder/ctest.log"; then
    if [[ ! -s "$ran/LastTestsFailed.log" ]]; then
      has_failed "$preset: its tests do not run" <"$folder/ctest.log"
    else
      while IFS=: read -r _ name; do
        has_failed "$preset: $name" < <(
          output_of "$name" "$ran/LastTest.log"
          grep -F -m 1 ": $name " "$folder/ctest.log"  # how: a time-out, say
        )
      done <"$ran/LastTestsFailed.log"
    fi
  fi
  times+=("$preset: built in $((built - begin)) s, its tests ran in $((SECONDS - built)) s")
  closing_lines=("$preset:" "$(grep '% tests passed' "$folder/ctest.log" || true)" "${closing_lines[@]}")
}

mkdir -p build
failures=build/failures.log
: >"$failures"

run_preset release
if [[ -f build/release/tests/python/wheel/skipped ]]; then
  skipped+=("Python tests: $(<build/release/tests/python/wheel/skipped)")
fi
run_preset asan
run_preset tsan
if compgen -G 'tests/fuzz/*.cc' >/dev/null; then
  run_preset fuzz
else
  skipped+=("fuzz tests: there are none")
fi
if ! command -v nvcc >/dev/null; then
  skipped+=("CUDA tests: no nvcc")
elif ! nvidia-smi >/dev/null 2>&1; then
  skipped+=("CUDA tests: no GPU")
else
  run_preset cuda
fi

cat "$failures"
echo
printf 'time: %s\n' "${times[@]}"
for reason in "${skipped[@]}"; do
  echo "skipped: $reason"
done
for what in "${failed[@]}"; do
  echo "failed: $what"
done
printf '%s\n' "${closing_lines[@]}"
[[ ${#failed[@]} == 0 ]]
