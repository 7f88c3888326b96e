// Times topk on a GPU by graph replay, beside the floor of one read of the scores. Usage:
// sluice_cuda_topk [--columns N]... [--batch B]... [--k K]... [--scores NAME]... [--dtype
// float32|bfloat16] [--hint PERCENT] [--plans all]; prints a JSON object.
//
// Hot, as in decoding: the scores lie in L2 where they fit; calls take turns at up to four copies
// of them. A call's time is what 32 more of them add to a graph; the median of nine replays.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "bench/graph_timer.cuh"
#include "bench/rows.h"
#include "bench/score_rows.h"
#include "semantics/order.h"
#include "sluice/cuda_topk.hpp"
#include "sluice/error.hpp"
#include "sluice/topk.hpp"

namespace sluice::bench {
namespace {

class ReplayTimer {
 public:
  ReplayTimer() { RequireCuda(cudaStreamCreate(&stream_)); }
  ~ReplayTimer() { cudaStreamDestroy(stream_); }
  ReplayTimer(const ReplayTimer&) = delete;
  ReplayTimer& operator=(const ReplayTimer&) = delete;

  // call(i, stream) enqueues call number i.
  double Microseconds(const std::function<void(int, cudaStream_t)>& call) const {
    constexpr int kFew = 8, kMany = 40;
    return (Graph(call, kMany) - Graph(call, kFew)) / (kMany - kFew);
  }

 private:
  double Graph(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    RequireCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; ++i) call(i, stream_);
    cudaGraph_t graph;
    RequireCuda(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable;
    RequireCuda(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t start, stop;
    RequireCuda(cudaEventCreate(&start));
    RequireCuda(cudaEventCreate(&stop));
    std::vector<double> times;
    for (int replay = -3; replay < 9; ++replay) {
      RequireCuda(cudaEventRecord(start, stream_));
      RequireCuda(cudaGraphLaunch(executable, stream_));
      RequireCuda(cudaEventRecord(stop, stream_));
      RequireCuda(cudaEventSynchronize(stop));
      float ms = 0;
      RequireCuda(cudaEventElapsedTime(&ms, start, stop));
      if (replay >= 0) times.push_back(1e3 * static_cast<double>(ms));
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
  }

  cudaStream_t stream_ = nullptr;
};

std::vector<int32_t> FirstIds(const std::vector<float>& row, int32_t k) {
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    return semantics::Before({row[static_cast<size_t>(a)], a}, {row[static_cast<size_t>(b)], b});
  };
  const auto count = std::min<size_t>(row.size(), static_cast<size_t>(k));
  const auto end = ids.begin() + static_cast<ptrdiff_t>(count);
  std::nth_element(ids.begin(), end - 1, ids.end(), before);
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Rows in device memory, up to four times; the ninth row is the first one again.
class Bench {
 public:
  static constexpr int64_t kDistinct = 8;

  Bench(const NamedScores& scores, int64_t columns, DType dtype, int64_t rows)
      : columns_(columns),
        dtype_(dtype),
        rows_(rows),
        row_bytes_(static_cast<size_t>(columns) * SizeOf(dtype)),
        copies_(std::clamp<int64_t>((30 << 20) / (rows * static_cast<int64_t>(row_bytes_)), 1, 4)),
        memory_(static_cast<size_t>(copies_ * rows) * row_bytes_),
        largest_(static_cast<size_t>(rows)),
        work_(static_cast<size_t>(rows)),
        statuses_(static_cast<size_t>(rows)) {
    for (int64_t r = 0; r < std::min(rows, kDistinct); ++r) {
      std::vector<float> row = MakeScores(scores.scores, columns, static_cast<uint32_t>(r));
      std::vector<std::byte> bytes(row_bytes_);
      if (dtype == DType::kF32) {
        std::memcpy(bytes.data(), row.data(), row_bytes_);
      } else {
        for (size_t i = 0; i < row.size(); ++i) {
          const uint16_t narrow = RoundToBf16(row[i]);
          std::memcpy(bytes.data() + 2 * i, &narrow, 2);
          row[i] = WidenBf16(narrow);
        }
      }
      for (int64_t at = 0; at < copies_ * rows; ++at) {
        if (at % rows % kDistinct != r) continue;
        RequireCuda(cudaMemcpy(memory_.data() + static_cast<size_t>(at) * row_bytes_, bytes.data(),
                               row_bytes_, cudaMemcpyHostToDevice));
      }
      host_.push_back(std::move(row));
    }
  }

  LogitsView View(int64_t copy) const {
    return {memory_.data() + static_cast<size_t>(copy * rows_) * row_bytes_,
            rows_,
            columns_,
            columns_,
            dtype_,
            {DeviceKind::kCuda, 0}};
  }

  double Floor() const {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      for (const unsigned threads : {512u, 1024u}) {
        best = std::min(best, timer_.Microseconds([=, this](int i, cudaStream_t stream) {
          ReadKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), threads, 0, stream>>>(
              static_cast<const uint4*>(View(i % copies_).data), row_bytes_ / 16, largest_.data());
        }));
      }
    }
    return best;
  }

  // hint_percent: of the hinted indices, how many are of the answer; -1: no hint.
  double Time(int32_t k, int hint_percent, const cuda::TopkPlan* plan) {
    const DeviceMemory<int32_t> indices(static_cast<size_t>(rows_ * k));
    const auto hint_size = hint_percent < 0 ? size_t{0} : static_cast<size_t>(rows_ * k);
    const DeviceMemory<int32_t> hint(Hint(k, hint_percent, hint_size));
    auto call = [&](int i, cudaStream_t stream) {
      cuda::TopkInput input{.scores = View(i % copies_), .k = k};
      if (hint_size != 0) {
        input.hint = {hint.data(), hint.size()};
        input.hint_columns = k;
      }
      cuda::Topk(input,
                 {{indices.data(), indices.size()},
                  {},
                  {statuses_.data(), statuses_.size()},
                  {work_.data(), work_.size()}},
                 stream, plan);
    };
    const double us = timer_.Microseconds(call);
    const std::vector<int32_t> got = indices.Get();
    wrong_ = 0;
    for (int64_t r = 0; r < rows_; ++r) {
      const std::vector<int32_t>& ids = Expected(static_cast<size_t>(r % kDistinct), k);
      wrong_ += !std::equal(ids.begin(), ids.end(), got.begin() + r * k);
    }
    return us;
  }
  int wrong() const { return wrong_; }  // rows of the last Time
  std::vector<cuda::TopkWork> work() const { return work_.Get(); }

 private:
  const std::vector<int32_t>& Expected(size_t row, int32_t k) {
    std::vector<int32_t>& ids = expected_[{row, k}];
    if (ids.empty()) ids = FirstIds(host_[row], k);
    return ids;
  }

  std::vector<int32_t> Hint(int32_t k, int percent, size_t size) {
    std::vector<int32_t> hint(size);
    for (size_t i = 0; i < size; ++i) {
      const size_t row = i / static_cast<size_t>(k) % kDistinct;
      const semantics::Block block = semantics::Philox(19, static_cast<uint32_t>(i), 0, 0, 0);
      const bool is_hit = block.word[0] % 100 < static_cast<uint32_t>(percent);
      hint[i] = is_hit ? Expected(row, k)[i % static_cast<size_t>(k)]
                       : static_cast<int32_t>(block.word[1] % static_cast<uint32_t>(columns_));
    }
    return hint;
  }

  int64_t columns_;
  DType dtype_;
  int64_t rows_;
  size_t row_bytes_;
  int64_t copies_;
  DeviceMemory<std::byte> memory_;
  DeviceMemory<uint32_t> largest_;
  DeviceMemory<cuda::TopkWork> work_;
  DeviceMemory<RowStatus> statuses_;
  ReplayTimer timer_;
  std::vector<std::vector<float>> host_;
  std::map<std::pair<size_t, int32_t>, std::vector<int32_t>> expected_;
  int wrong_ = 0;
};

struct Options {
  std::vector<int64_t> columns, batches, ks;
  std::vector<std::string> scores;
  DType dtype = DType::kF32;
  int hint_percent = -1;
  bool all_plans = false;
};

Options OptionsFrom(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--columns") options.columns.push_back(std::atoll(argv[i + 1]));
    if (flag == "--batch") options.batches.push_back(std::atoll(argv[i + 1]));
    if (flag == "--k") options.ks.push_back(std::atoll(argv[i + 1]));
    if (flag == "--scores") options.scores.emplace_back(argv[i + 1]);
    if (flag == "--dtype" && std::string(argv[i + 1]) == "bfloat16") options.dtype = DType::kBf16;
    if (flag == "--hint") options.hint_percent = std::atoi(argv[i + 1]);
    if (flag == "--plans") options.all_plans = true;
  }
  if (options.columns.empty()) options.columns = {8192, 32768, 65536, 131072, 262144, 524288};
  if (options.batches.empty()) options.batches = {1, 16, 64, 128};
  if (options.ks.empty()) options.ks = {2048};
  if (options.scores.empty()) options.scores = {"normal"};
  return options;
}

// SLUICE_LOG=topk: what PlanTopk decides, in the words of sluice/device_topk.py.
void LogPlan(const cuda::TopkInput& input, const cuda::TopkPlan& plan) {
  const char* log = std::getenv("SLUICE_LOG");
  if (log == nullptr || (std::string(",") + log + ",").find(",topk,") == std::string::npos) return;
  const std::string way = plan.capacity == 0
                              ? "every row by the definition"
                              : "up to " + std::to_string(plan.capacity) + " candidates";
  std::fprintf(stderr,
               "sluice: topk of [%lld, %lld] %s, k = %d: guess by %s, %d blocks of %d threads a "
               "row, %s\n",
               static_cast<long long>(input.scores.rows),
               static_cast<long long>(input.scores.vocab),
               std::string(Name(input.scores.dtype)).c_str(), input.k,
               plan.guess == cuda::TopkGuess::kHint ? "hint" : "sample", plan.blocks, plan.threads,
               way.c_str());
}

// What PlanTopk says, or every shape that a device takes.
std::vector<cuda::TopkPlan> Plans(const Options& options, const cuda::TopkInput& input) {
  cuda::TopkPlan plan = cuda::PlanTopk(input);
  LogPlan(input, plan);
  if (options.hint_percent >= 0) plan.guess = cuda::TopkGuess::kHint;
  if (!options.all_plans) return {plan};
  std::vector<cuda::TopkPlan> plans;
  for (const int32_t blocks : {1, 2, 4, 8}) {
    for (const int32_t threads : {512, 1024}) {
      plans.push_back({plan.guess, blocks, threads, plan.capacity});
    }
  }
  return plans;
}

const char* NameOf(cuda::TopkWay way) {
  return way == cuda::TopkWay::kCandidates ? "candidates"
         : way == cuda::TopkWay::kPlateau  ? "plateau"
                                           : "definition";
}

void Run(int argc, char** argv) {
  const Options options = OptionsFrom(argc, argv);
  const Environment environment = ThisEnvironment();
  cudaDeviceProp device;
  RequireCuda(cudaGetDeviceProperties(&device, 0));
  std::printf(
      "{\"env\": {\"gpu\": \"%s\", \"processors\": %d, \"l2_bytes\": %d, \"cpu\": \"%s\", "
      "\"compiler\": \"%s\", \"os\": \"%s\"}, \"commit\": \"%s\", \"rows\": [",
      device.name, device.multiProcessorCount, device.l2CacheSize, environment.cpu.c_str(),
      environment.compiler.c_str(), environment.os.c_str(), environment.commit.c_str());
  const char* separator = "\n";
  for (const NamedScores& scores : kScores) {
    if (std::find(options.scores.begin(), options.scores.end(), scores.name) ==
            options.scores.end() &&
        options.scores[0] != "all") {
      continue;
    }
    for (const int64_t columns : options.columns) {
      for (const int64_t rows : options.batches) {
        Bench bench(scores, columns, options.dtype, rows);
        const double floor = bench.Floor();
        for (const int64_t k64 : options.ks) {
          const auto k = static_cast<int32_t>(k64);
          for (const cuda::TopkPlan& plan : Plans(options, {.scores = bench.View(0), .k = k})) {
            double us = 0;
            try {
              us = bench.Time(k, options.hint_percent, &plan);
            } catch (const Error&) {
              continue;  // a plan that this device does not take
            }
            const std::vector<cuda::TopkWork> work = bench.work();
            cuda::TopkWork most = work[0];
            for (const cuda::TopkWork& row : work) {
              most.way = std::max(most.way, row.way);
              most.reads = std::max(most.reads, row.reads);
              most.rounds = std::max(most.rounds, row.rounds);
              most.candidates = std::max(most.candidates, row.candidates);
            }
            const std::string name(Name(options.dtype));
            std::printf(
                "%s{\"bench\": \"cuda\", \"task\": \"topk-%d%s\", \"backend\": \"cuda\", "
                "\"dtype\": "
                "\"%s\", \"n\": %lld, \"batch\": %lld, \"distribution\": \"%s\", \"ns\": %.0f, "
                "\"floor_ns\": %.0f, \"floors\": %.2f, \"exact\": %s, \"plan\": \"%dx%d\", "
                "\"way\": \"%s\", \"reads\": %d, \"rounds\": %d, \"candidates\": %d}",
                separator, k, options.hint_percent >= 0 ? "-hint" : "", name.c_str(),
                static_cast<long long>(columns), static_cast<long long>(rows),
                std::string(scores.name).c_str(), us * 1e3, floor * 1e3, us / floor,
                bench.wrong() == 0 ? "true" : "false", plan.blocks, plan.threads, NameOf(most.way),
                most.reads, most.rounds, most.candidates);
            std::fprintf(stderr,
                         "%-11s %-8s K=%-5d N=%-7lld B=%-4lld %dx%-4d %8.2f us floor %6.2f %6.2fx "
                         "wrong %d %s reads %d rounds %d cand %d\n",
                         std::string(scores.name).c_str(), name.c_str(), k,
                         static_cast<long long>(columns), static_cast<long long>(rows), plan.blocks,
                         plan.threads, us, floor, us / floor, bench.wrong(), NameOf(most.way),
                         most.reads, most.rounds, most.candidates);
            separator = ",\n";
          }
        }
      }
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
    std::fprintf(stderr, "sluice_cuda_topk: %s\n", error.what());
    return 1;
  }
}
