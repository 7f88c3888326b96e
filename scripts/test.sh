#!/usr/bin/env bash
# Builds and runs tests; scripts/setup.sh has been here before. Usage: scripts/test.sh WHAT
#
#   test             the release build, and every promise once: all tests without the label `slow`
#   rest             what `test` leaves out: slow tests, sanitizers, threads, fuzz targets
#   all              both, and CUDA where a GPU is
#   list             prints the name of each test of the release build and the fuzz targets
#   gpu [--sanitize] builds for this machine's GPU and runs what needs one; then again, in part,
#                    under compute-sanitizer
#
# What fails stops nothing else: its last lines come again at the end, where a log that was cut still
# has them, and the exit code tells. Says what it skips and why, and the time of each phase, which
# build/times keeps for scripts/test_times.py. The last lines are ctest's own closing lines; the first
# phase's is the very last.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/compiler_cache.sh

readonly LAST_LINES=30  # of what failed
readonly PYTHON=$PWD/build/python-venv/bin/python
closing_lines=()
skipped=()
failed=()

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

# Seconds of CPU, user and system, of what this shell has waited for.
cpu_seconds() {
  times >build/times.now
  cpu=$(awk -F '[ ms]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' build/times.now)
}

# timed PHASE COMMAND...
timed() {
  local phase=$1 begin=$SECONDS before status=0
  shift
  cpu_seconds
  before=$cpu
  "$@" || status=$?
  cpu_seconds
  printf '%s\t%s\t%s\n' "$phase" $((SECONDS - begin)) $((cpu - before)) >>"$phases"
  return "$status"
}

# configure_and_build PRESET [--target TARGET] [CMAKE_OPTION...]
configure_and_build() {
  local preset=$1 target=()
  shift
  if [[ "${1:-}" == --target ]]; then
    target=("$1" "$2")
    shift 2
  fi
  { cmake --preset "$preset" "$@" && cmake --build --preset "$preset" "${target[@]}"; } 2>&1 |
    tee "build/$preset/build.log"
}

# run_ctest PRESET LOG CTEST_OPTION...
run_ctest() {
  local preset=$1 log=$2
  shift 2
  ctest --preset "$preset" -j "$(nproc)" --output-junit "$PWD/${log%.log}.xml" "$@" 2>&1 | tee "$log"
}

# build PRESET [--target TARGET] [CMAKE_OPTION...]
build() {
  local preset=$1
  echo "== $preset"
  # No two presets with a sanitizer have an object in common, so ccache need not preprocess a file to
  # find out: some 5 % of the time to compile it.
  case "$preset" in
    asan | tsan) export CCACHE_DEPEND=1 ;;
    *) unset CCACHE_DEPEND ;;
  esac
  mkdir -p "build/$preset"
  if ! timed "$preset: build" configure_and_build "$@"; then
    has_failed "$preset: it does not build" <"build/$preset/build.log"
    return 1
  fi
}

# run_tests PRESET NAME CTEST_OPTION...: of a preset that is built.
run_tests() {
  local preset=$1 name=$2 log="build/$1/ctest_$2.log" ran="build/$1/Testing/Temporary" test
  shift 2
  rm -f "$ran/LastTestsFailed.log"
  if ! timed "$preset: $name" run_ctest "$preset" "$log" "$@"; then
    if [[ ! -s "$ran/LastTestsFailed.log" ]]; then
      has_failed "$preset: its tests do not run" <"$log"
    else
      while IFS=: read -r _ test; do
        has_failed "$preset: $test" < <(
          output_of "$test" "$ran/LastTest.log"
          grep -F -m 1 ": $test " "$log"  # how: a time-out, say
        )
      done <"$ran/LastTestsFailed.log"
    fi
  fi
  closing_lines=("$preset, $name:" "$(grep '% tests passed' "$log" || true)" "${closing_lines[@]}")
}

build_release() {
  local options=()
  if "$PYTHON" -c 'import nanobind' 2>/dev/null; then
    options=(-DSLUICE_PYTHON=ON "-DPython_EXECUTABLE=$PYTHON")
  fi
  build release "${options[@]}"
}

run_test() {
  if build_release; then run_tests release tests -LE slow; fi
}

run_rest() {
  local options=(-DSLUICE_FUZZ_SECONDS=10)
  # In CI what counts of a fuzz target is that the seeds and what is near them end well; at home, what
  # is found. And a report of CI names functions, not lines: with -g1 clang 14 takes 24 s for a file of
  # 21, g++ 12 takes 10 for one of 8.
  if [[ "${CI:-}" == true ]]; then options=(-DSLUICE_FUZZ_SECONDS=3 -DCMAKE_CXX_FLAGS_DEBUG=-Og); fi
  if [[ -x build/release/sluice ]] || build_release; then run_tests release slow -L slow; fi
  if command -v clang++ >/dev/null; then
    if build asan "${options[@]}"; then
      run_tests asan tests
    fi
  else
    skipped+=("address and undefined-behaviour sanitizers, fuzz targets: no clang++")
  fi
  if build tsan "${options[@]}"; then run_tests tsan tests; fi
}

# sanitize_gpu TOOL: of each executable one test in eight, because they take 10 to 50 times as long.
sanitize_gpu() {
  local program failed_programs=0
  for program in $(ctest --test-dir build/cuda -N -L cuda -LE slow |
    sed -n 's/^ *Test *#[0-9]*: \([a-z0-9_]*_test\)\..*/\1/p' | sort -u); do
    echo "== compute-sanitizer --tool $1: $program"
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=0 compute-sanitizer --tool "$1" --error-exitcode 1 \
      "build/cuda/tests/$program" --gtest_brief=1 || failed_programs=$((failed_programs + 1))
  done
  return $((failed_programs > 0))
}

# run_gpu [--sanitize]
run_gpu() {
  local capability tool
  if ! command -v nvcc >/dev/null; then
    skipped+=("CUDA tests: no nvcc")
    return
  fi
  if ! capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null); then
    skipped+=("CUDA tests: no GPU")
    return
  fi
  capability=$(head -n 1 <<<"$capability" | tr -d .)
  if [[ $capability == 90 ]]; then capability=90a; fi  # with the instructions of Hopper alone
  build cuda --target sluice_cuda_code "-DCMAKE_CUDA_ARCHITECTURES=$capability-real" || return 0
  run_tests cuda tests -L cuda -LE slow
  if [[ "${1:-}" == --sanitize ]]; then
    for tool in memcheck racecheck; do
      timed "cuda: $tool" sanitize_gpu "$tool" >"build/cuda/$tool.log" 2>&1 ||
        has_failed "cuda: $tool" <"build/cuda/$tool.log"
    done
  fi
}

list_names() {
  { ctest --test-dir build/release -N -LE cuda; ctest --test-dir build/asan -N -L fuzz; } |
    sed -n 's/^ *Test *#[0-9]*: //p' | sort -u
}

what=${1:-}
shift || true
if [[ $what == list ]]; then
  list_names
  exit
fi
mkdir -p build/times
failures=build/failures.log
phases=build/times/$what.tsv
: >"$failures"
: >"$phases"

case "$what" in
  test) run_test ;;
  rest) run_rest ;;
  all)
    run_test
    run_rest
    run_gpu
    ;;
  gpu) run_gpu "$@" ;;
  *)
    sed -n 's/^#   \(.*\)/\1/p' "$0" >&2
    exit 2
    ;;
esac

cat "$failures"
echo
scripts/test_times.py "$phases"
for reason in "${skipped[@]}"; do
  echo "skipped: $reason"
done
for what in "${failed[@]}"; do
  echo "failed: $what"
done
printf '%s\n' "${closing_lines[@]}"
[[ ${#failed[@]} == 0 ]]
