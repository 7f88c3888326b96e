// Rows in device memory, from C++ alone: without a GPU the call is an error in a sentence.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <sluice/cuda/rows.hpp>
#include <sluice/sluice.hpp>
#include <sluice/version.hpp>
#include <vector>

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] != sluice::kVersionString) return 1;
  constexpr int64_t kVocab = 1000;
  std::vector<float> values(kVocab, 0.0f);
  values[123] = 5.0f;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU: compiled and linked");
    return 0;
  }
  void* logits = nullptr;
  void* params = nullptr;
  void* key = nullptr;
  void* id = nullptr;
  const sluice::SelectParams greedy{.temperature = 0.0f};
  const sluice::NoiseKey seed{.seed = 1};
  if (cudaMalloc(&logits, kVocab * sizeof(float)) != cudaSuccess) return 1;
  if (cudaMalloc(&params, sizeof greedy) != cudaSuccess) return 1;
  if (cudaMalloc(&key, sizeof seed) != cudaSuccess) return 1;
  if (cudaMalloc(&id, sizeof(int32_t)) != cudaSuccess) return 1;
  cudaMemcpy(logits, values.data(), kVocab * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(params, &greedy, sizeof greedy, cudaMemcpyHostToDevice);
  cudaMemcpy(key, &seed, sizeof seed, cudaMemcpyHostToDevice);
  const sluice::LogitsView view{
      logits, 1, kVocab, kVocab, sluice::DType::kF32, {sluice::DeviceKind::kCuda, 0}};
  sluice::cuda::SampleIds(view,
                          {.params = {static_cast<sluice::SelectParams*>(params), 1},
                           .keys = {static_cast<sluice::NoiseKey*>(key), 1}},
                          sluice::DrawMethod::kGumbel, {static_cast<int32_t*>(id), 1}, {}, nullptr);
  int32_t token = -1;
  cudaMemcpy(&token, id, sizeof token, cudaMemcpyDeviceToHost);
  std::printf("token %d\n", token);
  return token == 123 ? 0 : 1;
}
