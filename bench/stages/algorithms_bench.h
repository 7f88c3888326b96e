// All ways to select on one mix of rows: the experiment of J. Rudolph, "Finding the top-p elements"
// (2023), with exact sets. One thread, the row in cache, every call timed alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/stages/row_store.h"
#include "bench/stages/select_call.h"
#include "bench/support/stopwatch.h"
#include "bench/support/tasks.h"
#include "sluice/execution.hpp"
#include "sluice/research/algorithms.hpp"

namespace sluice::bench {

struct AlgorithmsOptions {
  int64_t vocab = 32000;
  int64_t rows = 100;
  int64_t passes = 5;             // over all rows, for one figure
  double slow_budget_ms = 400.0;  // no more calls are started after that, but one a row
  // Instead of the mix: `rows` rows of `vocab` logits, without NaN and +inf.
  std::vector<std::vector<float>> given_rows;
  // Instead of the tasks; peers have no part in it.
  std::optional<SelectParams> params;
  std::vector<Backend> backends;
};

// The mix stands for the rows of a small model, where no trace of one is given: of every 20, 10 are
// peaked, 7 mid and 3 flat.
Distribution MixedKind(int64_t row);
inline constexpr std::string_view kMixName = "mix 50% peaked, 35% mid, 15% flat";

struct RankedCall {
  std::string_view name;  // of the algorithm or the peer
  bool is_peer;
  Timing timing;  // its mean counts: rows differ, and all of them are to be served
  RowReads reads = {};
  // What answered the first row, when the library says so: kAuto is another one's answer.
  research::Algorithm ran = research::Algorithm::kAuto;
  int64_t compared = 0;   // results that were compared with the reference's
  int64_t different = 0;  // those that were not the same
};

struct Ranking {
  std::string_view task;  // its name; "params" for given parameters
  Backend backend;
  NucleusSizes nucleus;
  std::vector<RankedCall> calls;  // the fastest first
};

void RunAlgorithmsBench(const AlgorithmsOptions& options,
                        const std::function<void(const Ranking&)>& on_ranking,
                        const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
