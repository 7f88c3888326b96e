#!/usr/bin/env bash
# Builds the core for AArch64 with Debian's cross compiler, and runs tests of it under qemu-user: by hand
# alone, because the emulator takes minutes. Usage: scripts/aarch64.sh [TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."

for command in aarch64-linux-gnu-g++-12 qemu-aarch64; do
  command -v "$command" >/dev/null || {
    echo "aarch64: no $command: apt-get install g++-12-aarch64-linux-gnu qemu-user libgtest-dev" >&2
    exit 2
  }
done
tests=("$@")
[[ $# -gt 0 ]] || tests=(semantics_tests adjust_tests topk_test support_test)
if [[ ! -d build/aarch64-root ]]; then
  cmake -S /usr/src/googletest -B build/aarch64-gtest -G Ninja --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_GMOCK=OFF -DCMAKE_INSTALL_PREFIX="$PWD/build/aarch64-root" >/dev/null
  cmake --build build/aarch64-gtest --target install >/dev/null
fi
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target sluice_c "${tests[@]}"
for test in "${tests[@]}"; do
  echo "aarch64: $test"
  qemu-aarch64 -L /usr/aarch64-linux-gnu "build/aarch64/tests/$test" --gtest_brief=1
done
