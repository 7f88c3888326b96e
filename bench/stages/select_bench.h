// The benchmark of selection and draws on the CPU: one thread, every call timed alone.
//
// Hot: the row was read twice just before the call, so it lies in the nearest cache that holds it.
// Cold: a walk over more rows than any cache holds; each call gets a row that was not touched for a
// whole round. The floor is measured next to every call, on the same rows and in the same state,
// and so are the peers. Only ratios within a run mean something: nanoseconds on a shared machine do
// not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/stages/peers.h"
#include "bench/stages/row_store.h"
#include "bench/support/stopwatch.h"
#include "bench/support/tasks.h"
#include "sluice/execution.hpp"
#include "sluice/research/algorithms.hpp"

namespace sluice::bench {

struct SelectBenchOptions {
  int64_t vocab = kTargetVocab;
  int64_t rows = 200;                     // different rows a distribution
  size_t cold_bytes = size_t{320} << 20;  // read between two touches of a cold row
  int64_t compared_rows = 40;             // that are compared with the reference backend
  // For the reference, for each peer, and for each algorithm that was named; hot and
  // cold each.
  double slow_call_budget_ms = 60.0;
  int64_t least_slow_calls = 3;  // whatever they take
  std::vector<Task> tasks;
  std::vector<Distribution> distributions;
  std::vector<DType> dtypes;
  std::vector<Backend> backends;
  std::vector<research::Algorithm> algorithms;
};

// Few rows and little memory: shows that everything works, and no figure of it means anything.
SelectBenchOptions QuickOptions();

struct PeerTiming {
  std::string_view name;
  PeerTarget hot_target;
  Timing hot;
  Timing cold;
};

struct Cell {
  Task task;
  Backend backend;
  research::Algorithm algorithm;  // kAuto for the reference, which has one way only
  Timing hot;
  Timing cold;
  double reads;       // elements read for each one of the row, mean; 0 when the library did not say
  int64_t compared;   // timed results that were compared with the reference's
  int64_t different;  // those that were not the same
  std::vector<PeerTiming> peers;
};

// All cells of one kind of rows.
struct Group {
  Distribution distribution;
  DType dtype;
  int64_t vocab;
  NucleusSizes nucleus;
  bool is_as_wanted;  // the nuclei have the sizes that the distribution promises
  std::vector<Cell> cells;
};

// on_group gets every group when it is done; on_progress, what is measured next.
void RunSelectBench(const SelectBenchOptions& options,
                    const std::function<void(const Group&)>& on_group,
                    const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
