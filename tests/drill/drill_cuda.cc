// The rows of drill.cc on a GPU.
#include <cuda_runtime.h>

#include <cstdio>

#include "sluice/cuda/rows.hpp"
#include "tests/drill/rows.h"

namespace {

template <typename T>
T* ToDevice(const T* values, size_t count) {
  T* copy = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&copy), count * sizeof(T));
  cudaMemcpy(copy, values, count * sizeof(T), cudaMemcpyHostToDevice);
  return copy;
}

}  // namespace

int main() {
  int failures = 0;
  for (const sluice::drill::Case& c : sluice::drill::Cases()) {
    const sluice::NoiseKey key{.seed = 7};
    sluice::Cut cut;
    sluice::Cut* cuts = ToDevice(&cut, 1);
    sluice::LogitsView logits = c.Logits();
    logits.data = ToDevice(c.row.data(), c.row.size());
    logits.device = {sluice::DeviceKind::kCuda, 0};
    const sluice::cuda::RowParams params{.params = {ToDevice(&c.params, 1), 1},
                                         .keys = {ToDevice(&key, 1), 1}};
    sluice::cuda::Select(logits, params, {cuts, 1}, {}, nullptr);
    const cudaError_t error = cudaMemcpy(&cut, cuts, sizeof cut, cudaMemcpyDeviceToHost);
    std::printf("%s on cuda: %d kept\n", c.name, cut.count);
    if (error == cudaSuccess && cut.count == c.kept) continue;
    std::printf("FAILED: %s on cuda: %s\n", c.name, cudaGetErrorString(error));
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
