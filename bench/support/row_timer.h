// Times calls on the rows of a store one by one, each next to the floor on the same row and in the
// same state of the caches.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>

#include "bench/stages/row_store.h"
#include "bench/support/floor.h"
#include "bench/support/stopwatch.h"

namespace sluice::bench {

// How many calls make one figure.
struct CallBudget {
  int64_t calls;
  double milliseconds = 0.0;  // no more are started after that; 0: all are
  int64_t least = 1;          // whatever they take
};

class RowTimer {
 public:
  explicit RowTimer(RowStore& store) : store_(store) {}

  // Calls prepare(row, index) outside of the clock, then times run(). The row was read twice just
  // before, so it lies in the nearest cache that holds it.
  template <typename Prepare, typename Run>
  Timing Hot(const CallBudget& budget, const Prepare& prepare, const Run& run) {
    Samples samples;
    AddHot(budget, prepare, run, samples);
    return Summary(std::move(samples));
  }

  // As above, for calls that are measured in turns with others, because machines drift.
  template <typename Prepare, typename Run>
  void AddHot(const CallBudget& budget, const Prepare& prepare, const Run& run, Samples& samples) {
    Repeat(budget, samples, [&](int64_t call, double& floor) {
      const int64_t index = call % store_.rows();
      const void* const row = store_.Hot(index);
      Read(row);
      Read(row);
      floor = TimeOf([&] { Read(row); });
      prepare(row, index);
      Read(row);
      Read(row);
      return TimeOf(run);
    });
  }

  // As above, on rows that were not touched for a whole walk over the store.
  template <typename Prepare, typename Run>
  Timing Cold(const CallBudget& budget, const Prepare& prepare, const Run& run) {
    Samples samples;
    Repeat(budget, samples, [&](int64_t, double& floor) {
      const RowStore::ColdPair pair = store_.NextCold();
      prepare(pair.for_call, pair.row);
      floor = TimeOf([&] { Read(pair.for_floor); });
      return TimeOf(run);
    });
    return Summary(std::move(samples));
  }

 private:
  void Read(const void* row) const { Consume(RowMax(row, store_.dtype(), store_.vocab())); }

  template <typename Measurement>
  static void Repeat(const CallBudget& budget, Samples& samples, const Measurement& measure) {
    for (int64_t call = 0; call < budget.calls; ++call) {
      const bool is_used_up = budget.milliseconds > 0.0 && samples.used > budget.milliseconds * 1e6;
      if (is_used_up && std::ssize(samples.times) >= budget.least) break;
      double floor = 0.0;
      samples.times.push_back(measure(call, floor));
      samples.floors.push_back(floor);
      samples.used += samples.times.back();
    }
  }

  RowStore& store_;
};

}  // namespace sluice::bench
