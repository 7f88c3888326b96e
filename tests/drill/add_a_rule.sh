#!/usr/bin/env bash
# Adds the filter top-a to a copy of the source as CONTRIBUTING.md says, builds the copy and checks
# that every backend applies the filter. Usage: add_a_rule.sh SOURCE WORK_FOLDER
# With nvcc and a GPU, or with SLUICE_DRILL_CUDA=compile and nvcc, the CUDA backend as well.
set -euo pipefail
source_dir=$1
work=$2
rm -rf "$work"
mkdir -p "$work/tests" "$work/models/default"
cp -r "$source_dir"/{CMakeLists.txt,cmake,include,src} "$work"
cp -r "$source_dir/tests/drill" "$work/tests"
cp "$source_dir/models/default/CMakeLists.txt" "$work/models/default"
cd "$work"
patch --quiet -p1 --no-backup-if-mismatch -i tests/drill/top_a.patch ||
  { echo "tests/drill/top_a.patch does not apply: bring it up to date"; exit 1; }

cuda=OFF
if command -v nvcc >/dev/null; then
  if [[ "${SLUICE_DRILL_CUDA:-}" == compile ]] || nvidia-smi -L >/dev/null 2>&1; then cuda=ON; fi
fi
# -O0: compiling takes nearly all of the time.
cuda_flags="-O0 -DNDEBUG"
if [[ $cuda == ON ]] && grep -q Ofast-compile <(nvcc --help); then cuda_flags+=" -Ofc max"; fi
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
  -DSLUICE_CUDA=$cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real \
  -DCMAKE_CUDA_FLAGS_RELEASE="$cuda_flags" -DSLUICE_BUILD_TESTS=OFF -DSLUICE_BUILD_CLI=OFF \
  -DSLUICE_BUILD_EXAMPLES=OFF >configure.log
cmake --build build --target sluice_core >build.log || { tail -n 40 build.log; exit 1; }
flags=(-std=c++20 -O1 -ffp-contract=off -I include -I build/include -I src -I .)
"${CXX:-c++}" "${flags[@]}" tests/drill/drill.cc build/src/libsluice_core.a -o drill
./drill

if [[ $cuda == ON ]]; then
  objects=src/CMakeFiles/sluice_cuda.dir
  units=("$objects"/{cuda/row_launch,select/cuda/select_cuda,select/cuda/select_patched_cuda}.cu.o)
  ninja -C build "${units[@]}" >build_cuda.log || { tail -n 40 build_cuda.log; exit 1; }
  nvcc -std=c++20 -I include -I build/include -I . tests/drill/drill_cuda.cc \
    "${units[@]/#/build/}" build/src/libsluice_core.a -o drill_cuda
  [[ "${SLUICE_DRILL_CUDA:-}" == compile ]] || ./drill_cuda
else
  echo "CUDA: not checked, there is no GPU or no nvcc"
fi
