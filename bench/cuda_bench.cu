// Times the CUDA backend by graph replay on rows like a model's, beside the floors: one read of the
// rows, and one read and write of them. Usage: sluice_cuda_bench [--quick] [--vocab N] [--dtype
// float32|bfloat16] [--batch N]... [--task NAME]... ; prints a JSON object.
//
// Hot, as in decoding: in the graph a kernel rewrites the logits before each call, and the time of
// a graph of rewrites alone is taken off. Medians of nine replays.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "bench/rows.h"
#include "semantics/philox.h"
#include "sluice/cuda.hpp"
#include "sluice/draw.hpp"
#include "sluice/error.hpp"

namespace sluice::bench {
namespace {

void Require(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

template <typename T>
T* Allocate(size_t count) {
  T* data = nullptr;
  Require(cudaMalloc(&data, count * sizeof(T)));
  return data;
}

__global__ void CopyKernel(const uint4* from, uint4* to, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

// The largest word of each row, a stand-in for any work that reads everything once.
__global__ void ReadKernel(const uint4* rows, size_t vectors, uint32_t* largest) {
  const uint4* row = rows + blockIdx.y * vectors;
  uint32_t most = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
#pragma unroll 8
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const uint4 v = __ldg(row + i);
    most = max(max(max(v.x, v.y), max(v.z, v.w)), most);
  }
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest + blockIdx.y, most);
}

__global__ void ReadWriteKernel(uint4* rows, size_t vectors, uint32_t threshold) {
  uint4* row = rows + blockIdx.y * vectors;
  const size_t step = size_t{gridDim.x} * blockDim.x;
#pragma unroll 4
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    uint4 v = row[i];
    v.x = v.x < threshold ? v.x : 0;
    v.y = v.y < threshold ? v.y : 0;
    v.z = v.z < threshold ? v.z : 0;
    v.w = v.w < threshold ? v.w : 0;
    row[i] = v;
  }
}

class Bench {
 public:
  Bench(int64_t vocab, DType dtype, int64_t rows, Distribution distribution)
      : vocab_(vocab),
        dtype_(dtype),
        rows_(rows),
        bytes_(static_cast<size_t>(rows * vocab) * SizeOf(dtype)) {
    Require(cudaStreamCreate(&stream_));
    master_ = Allocate<std::byte>(bytes_ + 64);
    logits_ = Allocate<std::byte>(bytes_ + 64);
    params_ = Allocate<SelectParams>(static_cast<size_t>(rows));
    keys_ = Allocate<NoiseKey>(static_cast<size_t>(rows));
    results_ = Allocate<TokenResult>(static_cast<size_t>(rows));
    ids_ = Allocate<int32_t>(static_cast<size_t>(rows));
    cuts_ = Allocate<Cut>(static_cast<size_t>(rows));
    largest_ = Allocate<uint32_t>(static_cast<size_t>(rows));
    const size_t row_bytes = static_cast<size_t>(vocab) * SizeOf(dtype);
    constexpr int64_t kDistinct = 32;  // rows beyond are copies
    host_.resize(static_cast<size_t>(std::min(rows, kDistinct)));
    for (int64_t r = 0; r < rows; ++r) {
      auto& host = host_[static_cast<size_t>(r % kDistinct)];
      if (host.empty()) {
        const std::vector<float> row = MakeRow(distribution, vocab, static_cast<uint32_t>(r));
        host.resize(row_bytes);
        for (size_t i = 0; i < row.size(); ++i) {
          if (dtype == DType::kF32) {
            std::memcpy(host.data() + 4 * i, &row[i], 4);
          } else {
            const uint16_t narrow = RoundToBf16(row[i]);
            std::memcpy(host.data() + 2 * i, &narrow, 2);
          }
        }
      }
      Require(cudaMemcpy(master_ + static_cast<size_t>(r) * row_bytes, host.data(), row_bytes,
                         cudaMemcpyHostToDevice));
    }
    std::vector<NoiseKey> keys;
    for (int64_t r = 0; r < rows; ++r) keys.push_back({7, static_cast<uint32_t>(r)});
    Require(cudaMemcpy(keys_, keys.data(), keys.size() * sizeof(NoiseKey), cudaMemcpyHostToDevice));
  }
  ~Bench() {
    for (void* memory :
         {static_cast<void*>(master_), static_cast<void*>(logits_), static_cast<void*>(params_),
          static_cast<void*>(keys_), static_cast<void*>(results_), static_cast<void*>(ids_),
          static_cast<void*>(cuts_), static_cast<void*>(largest_)}) {
      cudaFree(memory);
    }
    cudaStreamDestroy(stream_);
  }

  size_t vectors_a_row() const { return static_cast<size_t>(vocab_) * SizeOf(dtype_) / 16; }

  double ReadFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(
            best, Microseconds([=, this] {
              ReadKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream_>>>(
                  reinterpret_cast<const uint4*>(logits_), vectors_a_row(), largest_);
            }));
      }
    }
    return best;
  }

  double ReadWriteFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(
            best, Microseconds([=, this] {
              ReadWriteKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream_>>>(
                  reinterpret_cast<uint4*>(logits_), vectors_a_row(), 0xf0000000u);
            }));
      }
    }
    return best;
  }

  double SampleTime(const std::vector<SelectParams>& params) {
    SetParams(params);
    return Microseconds([this] { SampleIds(); });
  }

  // With the Cuts.
  double SampleCutsTime(const std::vector<SelectParams>& params) {
    SetParams(params);
    return Microseconds([this] {
      cuda::Sample(View(), {{params_, rows_}, {keys_, rows_}}, DrawMethod::kGumbel,
                   {results_, rows_}, stream_);
    });
  }

  // The rows that only the definition decides: those that are undecided behind all kernels but the
  // last.
  int RowsLeftToDefinition(const std::vector<SelectParams>& params) {
    SetParams(params);
    Require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    SampleIds();
    cudaGraph_t graph;
    Require(cudaStreamEndCapture(stream_, &graph));
    size_t count = 0;
    Require(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    Require(cudaGraphGetNodes(graph, nodes.data(), &count));
    Require(cudaGraphDestroyNode(nodes.back()));
    cudaGraphExec_t executable;
    Require(cudaGraphInstantiate(&executable, graph, 0));
    Require(cudaGraphLaunch(executable, stream_));
    std::vector<int32_t> ids(static_cast<size_t>(rows_));
    Require(cudaStreamSynchronize(stream_));
    Require(cudaMemcpy(ids.data(), ids_, ids.size() * sizeof(int32_t), cudaMemcpyDeviceToHost));
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return static_cast<int>(std::count(ids.begin(), ids.end(), -2));
  }

  double MaskTime(const std::vector<SelectParams>& params) {
    SetParams(params);
    return Microseconds([this] {
      cuda::SelectAndMask({logits_, rows_, vocab_, vocab_, dtype_, {DeviceKind::kCuda, 0}},
                          {{params_, rows_}, {keys_, rows_}}, {cuts_, rows_}, stream_);
    });
  }

  // Tokens that differ from the reference's, among the first rows.
  int WrongRows(const std::vector<SelectParams>& params, int64_t most) {
    const int64_t count = std::min<int64_t>(rows_, most);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    SampleIds();
    Require(cudaStreamSynchronize(stream_));
    Require(cudaMemcpy(ids.data(), ids_, ids.size() * sizeof(int32_t), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int64_t r = 0; r < count; ++r) {
      const LogitsView row{
          host_[static_cast<size_t>(r) % host_.size()].data(), 1, vocab_, vocab_, dtype_, {}};
      std::vector<std::byte> workspace(SelectWorkspaceBytes(row, {}) + 64);
      const size_t misaligned = reinterpret_cast<uintptr_t>(workspace.data()) % 64;
      const NoiseKey key{7, static_cast<uint32_t>(r)};
      TokenResult expected;
      sluice::Sample({row, {&params[static_cast<size_t>(r)], 1}, {&key, 1}}, DrawMethod::kGumbel,
                     {&expected, 1},
                     {.workspace = std::span(workspace).subspan((64 - misaligned) % 64)});
      wrong += ids[static_cast<size_t>(r)] != expected.id;
    }
    return wrong;
  }

 private:
  void SampleIds() {
    cuda::SampleIds(View(), {{params_, rows_}, {keys_, rows_}}, DrawMethod::kGumbel, {ids_, rows_},
                    {}, stream_);
  }
  LogitsView View() const {
    return {logits_, rows_, vocab_, vocab_, dtype_, {DeviceKind::kCuda, 0}};
  }
  void SetParams(const std::vector<SelectParams>& params) {
    Require(cudaMemcpy(params_, params.data(), params.size() * sizeof(SelectParams),
                       cudaMemcpyHostToDevice));
  }

  double Microseconds(const std::function<void()>& call) {
    if (rewrite_us_ < 0) rewrite_us_ = GraphTime({});
    return GraphTime(call) - rewrite_us_;
  }

  // Of one rewrite and one call, in a graph of several.
  double GraphTime(const std::function<void()>& call) {
    const int calls = rows_ >= 128 ? 8 : 20;
    Require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; ++i) {
      const unsigned blocks = static_cast<unsigned>(
          std::clamp<size_t>(bytes_ / 16 / 512 / 4, size_t{1}, size_t{132 * 4}));
      CopyKernel<<<blocks, 512, 0, stream_>>>(reinterpret_cast<const uint4*>(master_),
                                              reinterpret_cast<uint4*>(logits_),
                                              (bytes_ + 15) / 16);
      if (call) call();
    }
    cudaGraph_t graph;
    Require(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable;
    Require(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t start, stop;
    Require(cudaEventCreate(&start));
    Require(cudaEventCreate(&stop));
    std::vector<double> times;
    for (int replay = -2; replay < 9; ++replay) {
      Require(cudaEventRecord(start, stream_));
      Require(cudaGraphLaunch(executable, stream_));
      Require(cudaEventRecord(stop, stream_));
      Require(cudaEventSynchronize(stop));
      float ms = 0;
      Require(cudaEventElapsedTime(&ms, start, stop));
      if (replay >= 0) times.push_back(1e3 * static_cast<double>(ms) / calls);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
  }

  int64_t vocab_;
  DType dtype_;
  int64_t rows_;
  size_t bytes_;
  cudaStream_t stream_ = nullptr;
  std::byte* master_ = nullptr;
  std::byte* logits_ = nullptr;
  SelectParams* params_ = nullptr;
  NoiseKey* keys_ = nullptr;
  TokenResult* results_ = nullptr;
  int32_t* ids_ = nullptr;
  Cut* cuts_ = nullptr;
  uint32_t* largest_ = nullptr;
  std::vector<std::vector<std::byte>> host_;
  double rewrite_us_ = -1;
};

enum class Output { kIds, kCuts, kMask };

struct Task {
  const char* name;
  Output output;
  std::function<SelectParams(int64_t row)> params;
};

std::vector<Task> Tasks() {
  auto always = [](SelectParams params) { return [params](int64_t) { return params; }; };
  auto random = [](int64_t row) {
    const semantics::Block block = semantics::Philox(5, static_cast<uint32_t>(row), 0, 0, 0);
    return SelectParams{.top_k = static_cast<int32_t>(1 + block.word[0] % 1000),
                        .top_p = 0.05f + 0.95f * static_cast<float>(block.word[1]) * 0x1p-32f};
  };
  return {
      {"sample-k50-p0.9", Output::kIds, always({.top_k = 50, .top_p = 0.9f})},
      {"sample-random", Output::kIds, random},
      {"sample-k1000", Output::kIds, always({.top_k = 1000})},
      {"sample-p0.7", Output::kIds, always({.top_p = 0.7f})},
      {"sample", Output::kIds, always({})},
      {"sample-greedy", Output::kIds, always({.temperature = 0.0f})},
      {"sample-cut-k50-p0.9", Output::kCuts, always({.top_k = 50, .top_p = 0.9f})},
      {"sample-cut-p0.7", Output::kCuts, always({.top_p = 0.7f})},
      {"mask-k50-p0.9", Output::kMask, always({.top_k = 50, .top_p = 0.9f})},
      {"mask-k10", Output::kMask, always({.top_k = 10})},
      {"mask-p0.7", Output::kMask, always({.top_p = 0.7f})},
  };
}

void Run(int argc, char** argv) {
  int64_t vocab = 128256;
  DType dtype = DType::kF32;
  Distribution distribution = Distribution::kMid;
  std::vector<int64_t> batches;
  std::vector<std::string> only;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--vocab") vocab = std::atoll(argv[i + 1]);
    if (flag == "--batch") batches.push_back(std::atoll(argv[i + 1]));
    if (flag == "--task") only.push_back(argv[i + 1]);
    if (flag == "--dtype")
      dtype = std::string(argv[i + 1]) == "bfloat16" ? DType::kBf16 : DType::kF32;
    if (flag == "--distribution") {
      for (const Distribution d : kDistributions) {
        if (Name(d) == argv[i + 1]) distribution = d;
      }
    }
  }
  if (batches.empty()) batches = {1, 8, 32, 128, 256, 512};
  const Environment environment = ThisEnvironment();
  cudaDeviceProp device;
  Require(cudaGetDeviceProperties(&device, 0));
  std::printf(
      "{\"env\": {\"gpu\": \"%s\", \"processors\": %d, \"l2_bytes\": %d, \"cpu\": \"%s\", "
      "\"compiler\": \"%s\", \"os\": \"%s\"}, \"commit\": \"%s\", \"rows\": [",
      device.name, device.multiProcessorCount, device.l2CacheSize, environment.cpu.c_str(),
      environment.compiler.c_str(), environment.os.c_str(), environment.commit.c_str());
  const char* separator = "\n";
  for (const int64_t rows : batches) {
    Bench bench(vocab, dtype, rows, distribution);
    const double read = bench.ReadFloor();
    const double read_write = bench.ReadWriteFloor();
    for (const Task& task : Tasks()) {
      if (!only.empty() && std::find(only.begin(), only.end(), task.name) == only.end()) continue;
      std::vector<SelectParams> params;
      for (int64_t r = 0; r < rows; ++r) params.push_back(task.params(r));
      const bool masks = task.output == Output::kMask;
      const double us = masks                          ? bench.MaskTime(params)
                        : task.output == Output::kCuts ? bench.SampleCutsTime(params)
                                                       : bench.SampleTime(params);
      const int wrong = masks ? 0 : bench.WrongRows(params, 16);
      const int left = masks ? 0 : bench.RowsLeftToDefinition(params);
      const double floor = masks ? read_write : read;
      std::printf(
          "%s{\"bench\": \"cuda\", \"task\": \"%s\", \"backend\": \"cuda\", \"dtype\": \"%s\", "
          "\"vocab\": %lld, \"batch\": %lld, \"distribution\": \"%s\", \"ns\": %.0f, "
          "\"floor_ns\": %.0f, \"floors\": %.2f, \"exact\": %s, \"left_to_definition\": %d}",
          separator, task.name, std::string(Name(dtype)).c_str(), static_cast<long long>(vocab),
          static_cast<long long>(rows), std::string(Name(distribution)).c_str(), us * 1e3,
          floor * 1e3, us / floor, wrong == 0 ? "true" : "false", left);
      std::fprintf(
          stderr, "%-16s %-9s V=%-7lld B=%-4lld %8.2f us  floor %7.2f  %6.2fx  wrong %d  left %d\n",
          task.name, std::string(Name(dtype)).c_str(), static_cast<long long>(vocab),
          static_cast<long long>(rows), us, floor, us / floor, wrong, left);
      separator = ",\n";
    }
  }
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    sluice::bench::Run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice_cuda_bench: %s\n", error.what());
    return 1;
  }
}
