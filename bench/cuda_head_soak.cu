// Looks for a wrong interval and for a wrong token of the certified head on a GPU, over many hidden
// states of a made head. Usage: sluice_cuda_head_soak [--head VOCABxDIM] [--steps N]
// [--kind dither4|strict]; prints a JSON object, and ends with 1 where anything was wrong.
//
// A hidden state is normal noise and, along a row of the head that is drawn for it, a share of its
// norm that leaves the first logits about as far from the rest as a model's. All logits by
// definition are at hand, so every interval of every row is looked at, and four draws are
// compared.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/environment.h"
#include "bench/graph_timer.cuh"
#include "bench/heads.h"
#include "cli/thread_pool.h"
#include "head/device_call.h"
#include "semantics/philox.h"
#include "semantics/widen.h"
#include "sluice/cuda_head.hpp"

namespace sluice::bench {
namespace {

constexpr int64_t kBatch = 32;
constexpr int kThreads = 256;

// ||w|| ||h|| is 120 and the cosine of the drawn row 0.2, as in heads.cc: rows have a norm near 1.
__global__ void StatesKernel(const uint16_t* weights, int64_t vocab, int dim, uint32_t first,
                             uint16_t* hidden) {
  const uint32_t state = first + blockIdx.x;
  const uint64_t row = semantics::Philox(91, state, 0, 1, 0).word[0] % static_cast<uint64_t>(vocab);
  for (int j = static_cast<int>(threadIdx.x); j < dim; j += kThreads) {
    const semantics::Block bits = semantics::Philox(92, state, static_cast<uint32_t>(j), 2, 0);
    float noise = -2.0f;  // the sum of four uniform numbers, a variance of 1/3
    for (const uint32_t word : bits.word) noise += static_cast<float>(word >> 8) * 0x1p-24f;
    const float scale = 120.0f * 0.98f * sqrtf(3.0f / static_cast<float>(dim));
    const float w = __uint_as_float(
        uint32_t{weights[row * static_cast<uint64_t>(dim) + static_cast<uint64_t>(j)]} << 16);
    const float x = noise * scale + 120.0f * 0.2f * w;
    hidden[int64_t{blockIdx.x} * dim + j] =
        static_cast<uint16_t>((__float_as_uint(x) + 0x8000u) >> 16);
  }
}

struct Found {
  unsigned long long wrong;  // intervals
  unsigned long long other;  // tokens
  unsigned int most;         // the bits of the largest error over its half width
};

__global__ void IntervalsKernel(cuda::CallMemory memory, int64_t tiles, int64_t vocab,
                                const float* logits, Found* found) {
  const int64_t at = int64_t{blockIdx.y} * tiles * kTileRows;
  const float* const exact = logits + int64_t{blockIdx.y} * vocab;
  float most = 0.0f;
  unsigned int wrong = 0;
  for (int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x; v < vocab;
       v += int64_t{gridDim.x} * kThreads) {
    const double error =
        fabs(static_cast<double>(exact[v]) - static_cast<double>(memory.scores[at + v]));
    const double width = static_cast<double>(memory.widths[at + v]);
    if (!(error <= width)) ++wrong;
    most = fmaxf(most, static_cast<float>(error / width));
  }
  if (wrong != 0) atomicAdd(&found->wrong, static_cast<unsigned long long>(wrong));
  atomicMax(&found->most, __float_as_uint(most));
}

__global__ void TokensKernel(const int32_t* a, const int32_t* b, Found* found) {
  if (a[threadIdx.x] != b[threadIdx.x]) atomicAdd(&found->other, 1ull);
}

int Run(int argc, char** argv) {
  int64_t vocab = 128256, dim = 1024, steps = 80000;
  CertificateKind kind = CertificateKind::kDither4;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    char* rest = nullptr;
    if (flag == "--steps") steps = std::atoll(argv[i + 1]);
    if (flag == "--kind") kind = CertificateKindByName(argv[i + 1]);
    if (flag == "--head") {
      vocab = std::strtoll(argv[i + 1], &rest, 10);
      dim = std::atoll(rest + 1);
    }
  }
  cli::ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  const MadeHead made(vocab, dim, 1);
  const HeadPlanes planes =
      HeadPlanes::Build(made.weight(), {.kind = kind, .seed = 7}, pool.parallel());
  const DeviceMemory<uint16_t> weights(static_cast<size_t>(vocab * dim));
  RequireCuda(cudaMemcpy(weights.data(), made.weight().data, static_cast<size_t>(vocab * dim) * 2,
                         cudaMemcpyHostToDevice));
  const DeviceMemory<std::byte> plane_memory(cuda::DevicePlaneBytes(planes));
  cuda::HeadWeights head = {made.weight(), {}};
  head.weight.data = weights.data();
  head.weight.device = {DeviceKind::kCuda, 0};
  const cuda::DevicePlanes device_planes =
      cuda::UploadPlanes(planes, {plane_memory.data(), plane_memory.size()}, nullptr);
  const DeviceMemory<uint16_t> hidden(static_cast<size_t>(kBatch * dim));
  const DeviceMemory<float> logits(static_cast<size_t>(kBatch * vocab));
  const DeviceMemory<std::byte> workspace(cuda::CertifiedWorkspaceBytes(device_planes, kBatch));
  const DeviceMemory<int32_t> ids(kBatch), dense_ids(kBatch);
  const DeviceMemory<cuda::HeadRow> how(kBatch);
  const DeviceMemory<Found> found(std::vector<Found>(1));
  const std::vector<SelectParams> tasks = {{.temperature = 0.0f},
                                           {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f},
                                           {},
                                           {.top_p = 0.9f}};
  const DeviceMemory<SelectParams> params(tasks);
  const MutableLogitsView all = {logits.data(), kBatch,      vocab,
                                 vocab,         DType::kF32, {DeviceKind::kCuda, 0}};
  const cuda::CertifiedCall call = {
      .head = head,
      .planes = device_planes,
      .hidden = {hidden.data(), kBatch, dim, dim, DType::kBf16, {DeviceKind::kCuda, 0}},
      .workspace = {workspace.data(), workspace.size()},
      .rows = {how.data(), kBatch}};
  cuda::QuestionArgument question = {};
  question.k = 1;
  int64_t dense[4] = {};  // of each task
  const int64_t launches = (steps + kBatch - 1) / kBatch;
  for (int64_t n = 0; n < launches; ++n) {
    StatesKernel<<<kBatch, kThreads>>>(weights.data(), vocab, static_cast<int>(dim),
                                       static_cast<uint32_t>(n * kBatch), hidden.data());
    cuda::Project(head, call.hidden, all, nullptr);
    const cuda::CallArgument argument = cuda::ArgumentOf(call, question);
    cuda::LaunchEncode(argument, nullptr);
    cuda::LaunchScore(argument, nullptr);
    IntervalsKernel<<<dim3(32, kBatch), kThreads>>>(argument.memory, argument.planes.tiles, vocab,
                                                    logits.data(), found.data());
    std::vector<NoiseKey> some_keys;
    for (int64_t r = 0; r < kBatch; ++r) {
      some_keys.push_back({static_cast<uint64_t>(n), static_cast<uint32_t>(r)});
    }
    const DeviceMemory<NoiseKey> keys(some_keys);
    for (size_t t = 0; t < tasks.size(); ++t) {
      const cuda::RowParams of_rows = {{params.data() + t, 1}, {keys.data(), kBatch}};
      cuda::SampleIds(call, of_rows, DrawMethod::kGumbel, {ids.data(), kBatch}, {}, nullptr);
      cuda::SampleIds(all, of_rows, DrawMethod::kGumbel, {dense_ids.data(), kBatch}, {}, nullptr);
      TokensKernel<<<1, kBatch>>>(ids.data(), dense_ids.data(), found.data());
      for (const cuda::HeadRow& row : how.Get()) {
        dense[t] += row.path == CertifiedPath::kDense ? 1 : 0;
      }
    }
  }
  RequireCuda(cudaDeviceSynchronize());
  const Found result = found.Get()[0];
  float most = 0.0f;
  std::copy_n(reinterpret_cast<const char*>(&result.most), sizeof most,
              reinterpret_cast<char*>(&most));
  const Environment environment = ThisEnvironment();
  std::printf(
      "{\"commit\": \"%s\", \"bench\": \"cuda-head-soak\", \"planes\": \"%s\", \"n\": %lld, "
      "\"dim\": %lld, \"steps\": %lld, \"intervals\": %lld, \"wrong_intervals\": %llu, "
      "\"largest_error\": %.4f, \"tokens\": %lld, \"wrong_tokens\": %llu, \"dense_rows\": "
      "{\"greedy\": %lld, \"k50-p0.9\": %lld, \"softmax\": %lld, \"p0.9\": %lld}}\n",
      environment.commit.c_str(), std::string(Name(kind)).c_str(), static_cast<long long>(vocab),
      static_cast<long long>(dim), static_cast<long long>(launches * kBatch),
      static_cast<long long>(launches * kBatch * vocab), result.wrong, static_cast<double>(most),
      static_cast<long long>(launches * kBatch * std::ssize(tasks)), result.other,
      static_cast<long long>(dense[0]), static_cast<long long>(dense[1]),
      static_cast<long long>(dense[2]), static_cast<long long>(dense[3]));
  return result.wrong == 0 && result.other == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    return sluice::bench::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice_cuda_head_soak: %s\n", error.what());
    return 1;
  }
}
