// topk on a GPU by graph replay, and the floor of one read of the scores.
//
// Hot, as in decoding: the scores lie in L2 where they fit; calls take turns at up to four copies
// of them. A call's time is what 32 more of them add to a graph; the median of nine replays.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/score_rows.h"
#include "sluice/cuda/topk.hpp"

namespace sluice::bench {

struct DeviceTopkOptions {
  std::vector<NamedScores> scores;
  std::vector<int64_t> columns = {8192, 32768, 65536, 131072, 262144, 524288};
  std::vector<int64_t> batches = {1, 16, 64, 128};
  std::vector<int32_t> ks = {2048};
  DType dtype = DType::kF32;
  // Of the hinted indices, how many are of the answer; below 0: no hint.
  double hint_percent = -1;
  cuda::TopkGuess guess = cuda::TopkGuess::kHint;  // when there is one
  bool carries_thresholds = false;                 // from call to call, the first one from none
  // Instead of PlanTopk's: every one that a device takes, a shape, room for candidates.
  bool all_plans = false;
  std::optional<int32_t> blocks = {};
  std::optional<int32_t> threads = {};
  std::optional<int32_t> capacity = {};
};

struct DeviceTopkCell {
  std::string_view scores;
  int64_t columns;
  int64_t rows;
  int32_t k;
  cuda::TopkPlan plan;
  double us;
  double floor_us;
  int64_t wrong;        // rows that are not the total order's
  cuda::TopkWork most;  // of all rows
};

// The first device's name; empty: there is none.
std::string DeviceName();

void RunDeviceTopkBench(const DeviceTopkOptions& options,
                        const std::function<void(const DeviceTopkCell&)>& on_cell,
                        const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
