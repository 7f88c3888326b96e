#!/usr/bin/env bash
# Builds and runs every test that this machine can run; scripts/setup.sh has been here before.
# Says what it skips and why. The last lines are ctest's own closing lines; the release build's is
# the very last.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/compiler_cache.sh

closing_lines=()
skipped=()

run_preset() {
  local preset=$1 log
  echo "== $preset"
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  log="build/$preset/ctest.log"
  ctest --preset "$preset" -j "$(nproc)" 2>&1 | tee "$log"
  closing_lines=("$preset:" "$(grep '% tests passed' "$log")" "${closing_lines[@]}")
}

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

echo
for reason in "${skipped[@]}"; do
  echo "skipped: $reason"
done
printf '%s\n' "${closing_lines[@]}"
