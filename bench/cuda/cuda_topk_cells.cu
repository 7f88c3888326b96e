#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "bench/cuda/cuda_topk_cells.h"
#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/replay_timer.cuh"
#include "bench/support/rows.h"
#include "sluice/error.hpp"

namespace sluice::bench {
namespace {

// Rows in device memory, up to four times; the ninth row is the first one again.
class DeviceRows {
 public:
  static constexpr int64_t kDistinct = 8;

  DeviceRows(const NamedScores& scores, int64_t columns, DType dtype, int64_t rows)
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

  // hint_percent: of the hinted indices, how many are of the answer; below 0: no hint.
  double Time(int32_t k, double hint_percent, bool carries_thresholds, const cuda::TopkPlan* plan) {
    const DeviceMemory<int32_t> indices(static_cast<size_t>(rows_ * k));
    const DeviceMemory<int32_t> hint(Hints(k, hint_percent));
    const DeviceMemory<float> thresholds(
        std::vector<float>(carries_thresholds ? static_cast<size_t>(rows_) : 0,
                           std::numeric_limits<float>::quiet_NaN()));
    auto call = [&](int i, cudaStream_t stream) {
      cuda::TopkInput input{.scores = View(i % copies_), .k = k};
      if (hint.size() != 0) {
        input.hint = {hint.data(), hint.size()};
        input.hint_columns = k;
      }
      input.thresholds = {thresholds.data(), thresholds.size()};
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

  std::vector<int32_t> Hints(int32_t k, double percent) {
    std::vector<int32_t> hints;
    for (int64_t r = 0; percent >= 0 && r < rows_; ++r) {
      const std::vector<int32_t> hint = MakeHint(Expected(static_cast<size_t>(r % kDistinct), k),
                                                 columns_, percent, static_cast<uint32_t>(r));
      hints.insert(hints.end(), hint.begin(), hint.end());
    }
    return hints;
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
std::vector<cuda::TopkPlan> Plans(const DeviceTopkOptions& options, const cuda::TopkInput& input) {
  cuda::TopkPlan plan = cuda::PlanTopk(input);
  LogPlan(input, plan);
  if (options.hint_percent >= 0) plan.guess = options.guess;
  if (options.carries_thresholds) plan.guess = cuda::TopkGuess::kThreshold;
  plan.blocks = options.blocks.value_or(plan.blocks);
  plan.threads = options.threads.value_or(plan.threads);
  plan.capacity = options.capacity.value_or(plan.capacity);
  if (!options.all_plans) return {plan};
  std::vector<cuda::TopkPlan> plans;
  for (const int32_t blocks : {1, 2, 4, 8}) {
    for (const int32_t threads : {512, 1024}) {
      plans.push_back({plan.guess, blocks, threads, plan.capacity});
    }
  }
  return plans;
}

cuda::TopkWork MostOf(const std::vector<cuda::TopkWork>& work) {
  cuda::TopkWork most = work[0];
  for (const cuda::TopkWork& row : work) {
    most.way = std::max(most.way, row.way);
    most.reads = std::max(most.reads, row.reads);
    most.rounds = std::max(most.rounds, row.rounds);
    most.candidates = std::max(most.candidates, row.candidates);
  }
  return most;
}

}  // namespace

std::string DeviceName() {
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) == cudaSuccess) return device.name;
  cudaGetLastError();  // and forget it
  return "";
}

void RunDeviceTopkBench(const DeviceTopkOptions& options,
                        const std::function<void(const DeviceTopkCell&)>& on_cell,
                        const std::function<void(const std::string&)>& on_progress) {
  for (const NamedScores& scores : options.scores) {
    for (const int64_t columns : options.columns) {
      for (const int64_t rows : options.batches) {
        on_progress(std::string(scores.name) + ": " + std::to_string(rows) + " rows of " +
                    std::to_string(columns));
        DeviceRows device_rows(scores, columns, options.dtype, rows);
        const double floor = device_rows.Floor();
        for (const int32_t k : options.ks) {
          for (const cuda::TopkPlan& plan :
               Plans(options, {.scores = device_rows.View(0), .k = k})) {
            double us = 0;
            try {
              us = device_rows.Time(k, options.hint_percent, options.carries_thresholds, &plan);
            } catch (const Error&) {
              continue;  // a plan that this device does not take
            }
            on_cell({scores.name, columns, rows, k, plan, us, floor, device_rows.wrong(),
                     MostOf(device_rows.work())});
          }
        }
      }
    }
  }
}

}  // namespace sluice::bench
