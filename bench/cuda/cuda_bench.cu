// Times the CUDA backend by graph replay on rows like a model's, and the floors: one read of the
// rows, and one read and write of them. Usage: sluice_cuda_bench --help.
//
// Hot, as in decoding: in the graph a kernel rewrites the logits before each call, and the time of
// a graph of rewrites alone is taken off. Medians of nine replays.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "bench/support/rows.h"
#include "cuda/row_launch.h"
#include "semantics/draw/philox.h"
#include "sluice/cuda/rows.hpp"
#include "sluice/draw.hpp"
#include "sluice/error.hpp"

namespace sluice::bench {
namespace {

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
        bytes_(static_cast<size_t>(rows * vocab) * SizeOf(dtype)),
        master_(bytes_),
        logits_(bytes_),
        params_(static_cast<size_t>(rows)),
        keys_(static_cast<size_t>(rows)),
        results_(static_cast<size_t>(rows)),
        ids_(static_cast<size_t>(rows)),
        cuts_(static_cast<size_t>(rows)),
        largest_(static_cast<size_t>(rows)),
        timer_(master_.data(), logits_.data(), bytes_, rows >= 128 ? 8 : 20) {
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
      RequireCuda(cudaMemcpy(master_.data() + static_cast<size_t>(r) * row_bytes, host.data(),
                             row_bytes, cudaMemcpyHostToDevice));
    }
    std::vector<NoiseKey> keys;
    for (int64_t r = 0; r < rows; ++r) keys.push_back({7, static_cast<uint32_t>(r)});
    keys_.Set(keys);
  }

  size_t vectors_a_row() const { return static_cast<size_t>(vocab_) * SizeOf(dtype_) / 16; }

  double ReadFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(best, timer_.Microseconds([=, this](cudaStream_t stream) {
          ReadKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream>>>(
              reinterpret_cast<const uint4*>(logits_.data()), vectors_a_row(), largest_.data());
        }));
      }
    }
    return best;
  }

  double ReadWriteFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(best, timer_.Microseconds([=, this](cudaStream_t stream) {
          ReadWriteKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream>>>(
              reinterpret_cast<uint4*>(logits_.data()), vectors_a_row(), 0xf0000000u);
        }));
      }
    }
    return best;
  }

  double SampleTime(const std::vector<SelectParams>& params) {
    params_.Set(params);
    return timer_.Microseconds([this](cudaStream_t stream) { SampleIds(stream); });
  }

  double SampleCutsTime(const std::vector<SelectParams>& params) {
    params_.Set(params);
    return timer_.Microseconds([this](cudaStream_t stream) {
      cuda::Sample(View(), OnDevice(), DrawMethod::kGumbel, {results_.data(), rows_}, stream);
    });
  }

  int RowsByDefinition(const std::vector<SelectParams>& params) {
    params_.Set(params);
    const DeviceMemory<cuda::RowPath> ways(static_cast<size_t>(rows_));
    cuda::SampleIds(View(), OnDevice(), DrawMethod::kGumbel, {ids_.data(), rows_}, {}, nullptr,
                    {ways.data(), rows_});
    const std::vector<cuda::RowPath> of_rows = ways.Get();
    return static_cast<int>(std::count(of_rows.begin(), of_rows.end(), cuda::RowPath::kDefinition));
  }

  double MaskTime(const std::vector<SelectParams>& params) {
    params_.Set(params);
    return timer_.Microseconds([this](cudaStream_t stream) {
      cuda::SelectAndMask({logits_.data(), rows_, vocab_, vocab_, dtype_, {DeviceKind::kCuda, 0}},
                          OnDevice(), {cuts_.data(), rows_}, stream);
    });
  }

  // Tokens that differ from the reference's, among the first rows.
  int WrongRows(const std::vector<SelectParams>& params, int64_t most) {
    const int64_t count = std::min<int64_t>(rows_, most);
    SampleIds(nullptr);
    const std::vector<int32_t> ids = ids_.Get();
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
  void SampleIds(cudaStream_t stream) const {
    cuda::SampleIds(View(), OnDevice(), DrawMethod::kGumbel, {ids_.data(), rows_}, {}, stream);
  }
  cuda::RowParams OnDevice() const { return {{params_.data(), rows_}, {keys_.data(), rows_}}; }
  LogitsView View() const {
    return {logits_.data(), rows_, vocab_, vocab_, dtype_, {DeviceKind::kCuda, 0}};
  }

  int64_t vocab_;
  DType dtype_;
  int64_t rows_;
  size_t bytes_;
  DeviceMemory<std::byte> master_;
  DeviceMemory<std::byte> logits_;
  DeviceMemory<SelectParams> params_;
  DeviceMemory<NoiseKey> keys_;
  DeviceMemory<TokenResult> results_;
  DeviceMemory<int32_t> ids_;
  DeviceMemory<Cut> cuts_;
  DeviceMemory<uint32_t> largest_;
  GraphTimer timer_;
  std::vector<std::vector<std::byte>> host_;
};

enum class Output { kIds, kCuts, kMask };

// Those with no more blocks than a device has room for twice over.
std::vector<cuda::TeamShape> TeamsFor(int64_t rows, bool is_all) {
  std::vector<cuda::TeamShape> teams = {cuda::ShapeForRows(rows)};
  if (!is_all) return teams;
  const cuda::DeviceShape device = cuda::CurrentDeviceShape();
  for (const int blocks : {1, 2, 4, 8}) {
    for (const int threads : {512, 1024}) {
      const cuda::TeamShape shape{blocks, threads};
      if (blocks > 1 && (!device.has_clusters || rows * blocks > 2 * device.processors)) continue;
      if (!(shape == teams.front())) teams.push_back(shape);
    }
  }
  return teams;
}

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
      {"sample-k2000", Output::kIds, always({.top_k = 2000})},
      {"sample-k1000-min-p0.05", Output::kIds, always({.top_k = 1000, .min_p = 0.05f})},
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

struct Options {
  int64_t vocab = 128256;
  DType dtype = DType::kF32;
  Distribution distribution = Distribution::kMid;
  std::vector<int64_t> batches = {1, 8, 32, 128, 256, 512};
  std::vector<std::string> tasks;
  bool measures_all_teams = false;

  explicit Options(ProgramFlags& flags) {
    flags.Number("--vocab", vocab, {64, kMaxVocab}, "tokens of a row");
    flags.Choice("--dtype", dtype, ByName(std::array{DType::kF32, DType::kBf16}), "of the logits");
    flags.Choice("--distribution", distribution, ByName(kDistributions), "of the logits");
    flags.Number("--batch", batches, {1, 65535}, "rows of a call");
    flags.Names("--task", tasks, NamesOf(Tasks()), "only these");
    flags.Choice("--teams", measures_all_teams, {{"chosen", false}, {"all", true}},
                 "shapes of the team of a row");
  }
};

struct Floors {
  double read;
  double read_write;
};

// One row of the output, with the team that is fixed.
void Measure(Bench& bench, const Task& task, const Options& options, int64_t rows,
             const Floors& floors, cuda::TeamShape team, DeviceReport& report) {
  std::vector<SelectParams> params;
  for (int64_t r = 0; r < rows; ++r) params.push_back(task.params(r));
  const bool masks = task.output == Output::kMask;
  const double us = masks                          ? bench.MaskTime(params)
                    : task.output == Output::kCuts ? bench.SampleCutsTime(params)
                                                   : bench.SampleTime(params);
  const int wrong = masks ? 0 : bench.WrongRows(params, 16);
  const int left = masks ? 0 : bench.RowsByDefinition(params);
  const double floor = masks ? floors.read_write : floors.read;
  report.Row(
      "{\"bench\": \"cuda\", \"task\": \"%s\", \"backend\": \"cuda\", \"dtype\": \"%s\", "
      "\"vocab\": %lld, \"batch\": %lld, \"distribution\": \"%s\", \"ns\": %.0f, "
      "\"floor_ns\": %.0f, \"floors\": %.2f, \"exact\": %s, \"left_to_definition\": %d, "
      "\"team\": \"%dx%d\"}",
      task.name, std::string(Name(options.dtype)).c_str(), static_cast<long long>(options.vocab),
      static_cast<long long>(rows), std::string(Name(options.distribution)).c_str(), us * 1e3,
      floor * 1e3, us / floor, wrong == 0 ? "true" : "false", left, team.blocks, team.threads);
  std::fprintf(
      stderr,
      "%-16s %-9s V=%-7lld B=%-4lld %dx%-4d %8.2f us  floor %7.2f  %6.2fx  wrong %d  left %d\n",
      task.name, std::string(Name(options.dtype)).c_str(), static_cast<long long>(options.vocab),
      static_cast<long long>(rows), team.blocks, team.threads, us, floor, us / floor, wrong, left);
}

void Run(const Options& options) {
  DeviceReport report(ThisGpu());
  for (const int64_t rows : options.batches) {
    Bench bench(options.vocab, options.dtype, rows, options.distribution);
    const Floors floors{bench.ReadFloor(), bench.ReadWriteFloor()};
    for (const Task& task : Tasks()) {
      if (!IsSelected(options.tasks, task.name)) continue;
      for (const cuda::TeamShape team : TeamsFor(rows, options.measures_all_teams)) {
        const cuda::FixedShape fixed(team);
        Measure(bench, task, options, rows, floors, team, report);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(
      argc, argv, "sluice_cuda_bench",
      "Times selection, draws and masks on a GPU beside one read of the rows.", sluice::bench::Run);
}
