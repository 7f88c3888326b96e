// Tokens from logits in device memory: the same tokens as sluice::Sample gives on the CPU.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "sluice/cuda/rows.hpp"
#include "sluice/sluice.hpp"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};

// `values` copied into device memory.
template <typename T>
std::unique_ptr<T, Free> ToDevice(const std::vector<T>& values) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, values.size() * sizeof(T)));
  Check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return std::unique_ptr<T, Free>(static_cast<T*>(memory));
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device");
    return 77;  // a skipped test for CTest
  }
  constexpr int64_t kRows = 4, kVocab = 128256;
  std::vector<float> values(kRows * kVocab);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 7919 % 10007) * 1e-3f;
  const auto logits = ToDevice(values);
  const auto ids = ToDevice(std::vector<int32_t>(kRows, -1));
  cudaStream_t stream = nullptr;

  // [sample]
  // One set of parameters for all rows; a key for each row. Both lie in device memory.
  const auto params =
      ToDevice<sluice::SelectParams>({{.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}});
  const auto keys =
      ToDevice<sluice::NoiseKey>({{.seed = 1}, {.seed = 2}, {.seed = 3}, {.seed = 4}});
  const sluice::Device gpu{sluice::DeviceKind::kCuda, 0};
  const sluice::LogitsView view{logits.get(), kRows, kVocab, kVocab, sluice::DType::kF32, gpu};
  sluice::cuda::SampleIds(view, {.params = {params.get(), 1}, .keys = {keys.get(), kRows}},
                          sluice::DrawMethod::kGumbel, {ids.get(), kRows}, {}, stream);
  // [sample]

  std::vector<int32_t> tokens(kRows);
  Check(cudaMemcpy(tokens.data(), ids.get(), kRows * sizeof(int32_t), cudaMemcpyDeviceToHost));

  // The CPU draws the same tokens.
  const std::vector<sluice::SelectParams> cpu_params = {
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}};
  const std::vector<sluice::NoiseKey> cpu_keys = {
      {.seed = 1}, {.seed = 2}, {.seed = 3}, {.seed = 4}};
  const sluice::LogitsView rows{values.data(), kRows, kVocab, kVocab};
  std::vector<sluice::TokenResult> expected(kRows);
  std::vector<std::byte> memory(sluice::SelectWorkspaceBytes(rows, {}) +
                                sluice::kWorkspaceAlignment);
  void* aligned = memory.data();
  size_t size = memory.size();
  std::align(sluice::kWorkspaceAlignment, 1, aligned, size);
  sluice::Sample({rows, cpu_params, cpu_keys}, sluice::DrawMethod::kGumbel, expected,
                 {.workspace = {static_cast<std::byte*>(aligned), size}});
  bool same = true;
  for (size_t row = 0; row < kRows; ++row) {
    std::printf("token %d\n", tokens[row]);
    same = same && tokens[row] == expected[row].id;
  }
  return same ? 0 : 1;
}
