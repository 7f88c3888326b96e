// topk on the CPU: one thread, one row a call, every call timed alone next to one read of the row
// (row_timer.h says what hot and cold are). Every answer of a warm call is compared with the total
// order's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/score_rows.h"
#include "bench/support/stopwatch.h"
#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"

namespace sluice::bench {

struct TopkBenchOptions {
  std::vector<NamedScores> scores;
  std::vector<int64_t> columns;
  std::vector<int32_t> ks;
  std::vector<DType> dtypes;
  std::vector<Backend> backends;
  // Scores of one step after the other, instead of the made ones: `columns` is their width.
  std::vector<std::vector<float>> steps;
  int64_t rows = 10;                      // different ones, of those that are made
  int64_t calls = 120;                    // for one figure
  size_t cold_bytes = size_t{160} << 20;  // read between two touches of a cold row
  double slow_call_budget_ms = 60.0;      // of the reference
};

inline constexpr std::string_view kStepsName = "steps";

struct TopkCell {
  std::string_view scores;  // kStepsName: those of the file
  std::string hint;         // "none", "44 %" of the answer, "step before", "threshold": carried
  int64_t columns;
  int32_t k;
  DType dtype;
  Backend backend;
  double overlap;  // of hint and answer, mean share
  Timing hot;
  Timing cold;
  int64_t compared;
  int64_t different;
};

// What is promised: the median as a multiple of one read; nothing where there is no promise.
struct TopkTarget {
  double hot;
  double cold;
};
std::optional<TopkTarget> TargetOf(const TopkCell& cell);

// on_cell gets every cell when it is done; on_progress, what is measured next.
void RunTopkBench(const TopkBenchOptions& options,
                  const std::function<void(const TopkCell&)>& on_cell,
                  const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
