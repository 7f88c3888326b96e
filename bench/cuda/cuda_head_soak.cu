// Looks for a wrong interval and for a wrong token of the certified head on a GPU, over many hidden
// states of a made head, and ends with 1 where anything was wrong. Usage: sluice_cuda_head_soak
// --help.
//
// Up to four, up to eight and more hidden states a call are scored by kernels of their own. Of
// strict planes the intervals by both planes are looked at as well. How far it is stands on the
// error stream.
//
// A hidden state is normal noise and, along a row of the head that is drawn for it, a share of its
// norm that leaves the first logits about as far from the rest as a model's. All logits by
// definition are at hand, so every interval of every row is looked at, and five draws are
// compared.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/head/heads.h"
#include "bench/support/environment.h"
#include "bench/support/program_flags.h"
#include "head/certified/cuda/certified_kernels.h"
#include "semantics/draw/philox.h"
#include "semantics/order.h"
#include "semantics/widen.h"
#include "sluice/cuda/certified_sample.hpp"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

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

double LargestError(const Found& found) {
  return static_cast<double>(semantics::FloatOf(uint32_t{found.most}));
}

__global__ void IntervalsKernel(cuda::CertifiedWorkspace memory, int64_t tiles, int64_t vocab,
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

struct Drawn {
  explicit Drawn(size_t rows) : ids(rows), statuses(rows) {}
  DeviceMemory<int32_t> ids;
  DeviceMemory<RowStatus> statuses;
};

// Every row of the made states has a token.
__global__ void TokensKernel(const int32_t* ids, const RowStatus* statuses,
                             const int32_t* dense_ids, const RowStatus* dense_statuses,
                             Found* found) {
  const unsigned int row = threadIdx.x;
  const bool is_same = ids[row] == dense_ids[row] && statuses[row] == dense_statuses[row];
  if (!is_same || ids[row] < 0 || statuses[row] != RowStatus::kOk) atomicAdd(&found->other, 1ull);
}

struct Task {
  const char* name;
  SelectParams params;
  DrawMethod method = DrawMethod::kGumbel;
};
constexpr Task kTasks[] = {
    {"greedy", {.temperature = 0.0f}},
    {"k50-p0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}},
    {"softmax", {}},
    {"p0.9", {.top_p = 0.9f}},
    {"p0.9-cdf", {.temperature = 0.3f, .top_p = 0.9f}, DrawMethod::kCdf},
};

struct Options {
  HeadShape head = {128256, 1024};
  int64_t steps = 80000;
  int64_t batch = 32;
  CertificateKind kind = CertificateKind::kDither4;

  explicit Options(ProgramFlags& flags) {
    flags.Head("--head", head, "the head");
    flags.Number("--steps", steps, {1, int64_t{1} << 32}, "hidden states in all");
    flags.Number("--batch", batch, {1, 256}, "of them in a call");
    flags.Choice("--kind", kind,
                 ByName(std::array{CertificateKind::kDither4, CertificateKind::kStrict}),
                 "of the planes");
  }
};

int Run(const Options& options) {
  const auto [vocab, dim] = options.head;
  const int64_t batch = options.batch;
  const auto rows = static_cast<size_t>(batch);
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  const MadeHead made(vocab, dim, 1);
  const HeadPlanes planes =
      HeadPlanes::Build(made.weight(), {.kind = options.kind, .seed = 7}, pool.parallel());
  const DeviceMemory<uint16_t> weights(static_cast<size_t>(vocab * dim));
  RequireCuda(cudaMemcpy(weights.data(), made.weight().data, static_cast<size_t>(vocab * dim) * 2,
                         cudaMemcpyHostToDevice));
  const DeviceMemory<std::byte> plane_memory(cuda::DevicePlaneBytes(planes));
  cuda::HeadWeights head = {made.weight(), {}};
  head.weight.data = weights.data();
  head.weight.device = {DeviceKind::kCuda, 0};
  const cuda::DevicePlanes device_planes =
      cuda::UploadPlanes(planes, {plane_memory.data(), plane_memory.size()}, nullptr);
  const DeviceMemory<uint16_t> hidden(static_cast<size_t>(batch * dim));
  const DeviceMemory<float> logits(static_cast<size_t>(batch * vocab));
  const DeviceMemory<std::byte> workspace(cuda::CertifiedWorkspaceBytes(device_planes, batch));
  const Drawn drawn(rows), dense_drawn(rows);
  const DeviceMemory<cuda::HeadRow> how(rows);
  const DeviceMemory<Found> found(std::vector<Found>(1));
  const DeviceMemory<Found> found_by_both(std::vector<Found>(1));
  constexpr size_t kTaskCount = std::size(kTasks);
  std::vector<SelectParams> params_of_tasks;
  for (const Task& task : kTasks) params_of_tasks.push_back(task.params);
  const DeviceMemory<SelectParams> params(params_of_tasks);
  const MutableLogitsView all = {logits.data(), batch,       vocab,
                                 vocab,         DType::kF32, {DeviceKind::kCuda, 0}};
  const cuda::CertifiedCall call = {
      .head = head,
      .planes = device_planes,
      .hidden = {hidden.data(), batch, dim, dim, DType::kBf16, {DeviceKind::kCuda, 0}},
      .workspace = {workspace.data(), workspace.size()},
      .rows = {how.data(), batch}};
  cuda::QuestionArgument question = {};
  question.k = 1;
  const bool has_low_plane = cuda::ArgumentOf(call, question).memory.probed != nullptr;
  // That every token reaches.
  const std::vector<cuda::ProbedEnds> all_probed(rows, {semantics::OrderKey(-INFINITY), 0, 0});
  int64_t dense[kTaskCount] = {};
  const int64_t launches = (options.steps + batch - 1) / batch;
  for (int64_t n = 0; n < launches; ++n) {
    StatesKernel<<<static_cast<unsigned>(batch), kThreads>>>(
        weights.data(), vocab, static_cast<int>(dim), static_cast<uint32_t>(n * batch),
        hidden.data());
    cuda::Project(head, call.hidden, all, nullptr);
    const cuda::CertifiedArgs argument = cuda::ArgumentOf(call, question);
    cuda::LaunchEncode(argument, nullptr);
    cuda::LaunchScore(argument, nullptr);
    IntervalsKernel<<<dim3(32, static_cast<unsigned>(batch)), kThreads>>>(
        argument.memory, argument.planes.tiles, vocab, logits.data(), found.data());
    if (has_low_plane) {
      RequireCuda(cudaMemcpyAsync(argument.memory.probed, all_probed.data(),
                                  rows * sizeof(cuda::ProbedEnds), cudaMemcpyHostToDevice,
                                  nullptr));
      cuda::LaunchRefine(argument, nullptr);
      IntervalsKernel<<<dim3(32, static_cast<unsigned>(batch)), kThreads>>>(
          argument.memory, argument.planes.tiles, vocab, logits.data(), found_by_both.data());
    }
    std::vector<NoiseKey> some_keys;
    for (int64_t r = 0; r < batch; ++r) {
      some_keys.push_back({static_cast<uint64_t>(n), static_cast<uint32_t>(r)});
    }
    const DeviceMemory<NoiseKey> keys(some_keys);
    for (size_t t = 0; t < kTaskCount; ++t) {
      const cuda::RowParams of_rows = {{params.data() + t, 1}, {keys.data(), batch}};
      const DrawMethod method = kTasks[t].method;
      cuda::SampleIdsFromHead(call, of_rows, method, {drawn.ids.data(), batch},
                              {drawn.statuses.data(), batch}, nullptr);
      cuda::SampleIds(all, of_rows, method, {dense_drawn.ids.data(), batch},
                      {dense_drawn.statuses.data(), batch}, nullptr);
      TokensKernel<<<1, static_cast<unsigned>(batch)>>>(drawn.ids.data(), drawn.statuses.data(),
                                                        dense_drawn.ids.data(),
                                                        dense_drawn.statuses.data(), found.data());
      for (const cuda::HeadRow& row : how.Get()) {
        dense[t] += row.path == CertifiedPath::kDense ? 1 : 0;
      }
    }
    if ((n + 1) % std::max<int64_t>(1, launches / 20) == 0) {
      std::fprintf(stderr, "%lld of %lld hidden states\n", static_cast<long long>((n + 1) * batch),
                   static_cast<long long>(launches * batch));
    }
  }
  RequireCuda(cudaDeviceSynchronize());
  const Found result = found.Get()[0];
  const Found by_both = found_by_both.Get()[0];
  const Environment environment = ThisEnvironment();
  std::printf(
      "{\"commit\": \"%s\", \"bench\": \"cuda-head-soak\", \"planes\": \"%s\", \"n\": %lld, "
      "\"dim\": %lld, \"batch\": %lld, \"steps\": %lld, \"intervals\": %lld, \"wrong_intervals\": "
      "%llu, "
      "\"largest_error\": %.4f, \"intervals_by_both\": %lld, \"wrong_by_both\": %llu, "
      "\"largest_error_by_both\": %.4f, \"tokens\": %lld, \"wrong_tokens\": %llu, \"dense_rows\": "
      "{",
      environment.commit.c_str(), std::string(Name(options.kind)).c_str(),
      static_cast<long long>(vocab), static_cast<long long>(dim), static_cast<long long>(batch),
      static_cast<long long>(launches * batch), static_cast<long long>(launches * batch * vocab),
      result.wrong, LargestError(result),
      static_cast<long long>(has_low_plane ? launches * batch * vocab : 0), by_both.wrong,
      LargestError(by_both), static_cast<long long>(launches * batch * std::ssize(kTasks)),
      result.other);
  for (size_t t = 0; t < kTaskCount; ++t) {
    std::printf("%s\"%s\": %lld", t == 0 ? "" : ", ", kTasks[t].name,
                static_cast<long long>(dense[t]));
  }
  std::printf("}}\n");
  return result.wrong == 0 && by_both.wrong == 0 && result.other == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(
      argc, argv, "sluice_cuda_head_soak",
      "Looks for wrong intervals and tokens of the certified head on a GPU.", sluice::bench::Run);
}
