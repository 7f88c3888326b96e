// Times several calls on the same rows in turns, so that a machine that drifts is unfair to none.
#pragma once

#include <vector>

#include "bench/stages/select_call.h"
#include "bench/support/row_timer.h"

namespace sluice::bench {

// One element a call. budget: of each call in each pass.
inline std::vector<Samples> SamplesInTurns(std::vector<CheckedCall>& calls, RowTimer& timer,
                                           const CallBudget& budget, int64_t passes) {
  std::vector<Samples> samples(calls.size());
  for (int64_t pass = -1; pass < passes; ++pass) {
    for (size_t turn = 0; turn < calls.size(); ++turn) {
      // The first call finds caches and branch predictors colder: in each pass another one.
      const size_t i = (turn + static_cast<size_t>(pass + 1)) % calls.size();
      CheckedCall& call = calls[i];
      const auto prepare = [&](const void* row, int64_t index) { call.Prepare(row, index); };
      const auto run = [&] { call.Run(); };
      if (pass < 0) {
        timer.Hot({2}, prepare, run);  // finds code and memory cold
      } else {
        timer.AddHot(budget, prepare, run, samples[i]);
      }
    }
  }
  return samples;
}

}  // namespace sluice::bench
