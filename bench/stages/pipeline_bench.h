// Whole steps of a Sampler: penalties, masks, selection and draw, for requests of several kinds.
//
// The logits were read just before each step, so a batch is as warm as one of its size can be. The
// floor is one streaming read of all of its rows by one thread, in the same state. What a step
// appended is rolled back outside of the clock, so that every step does the same work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/stopwatch.h"
#include "sluice/sampler.hpp"

namespace sluice::bench {

struct PipelineOptions {
  int64_t vocab = 128256;
  std::vector<int64_t> batches = {8, 64};  // mixed ones; the last is a multiple of each
  int64_t prompt_length = 512;
  int64_t steps = 200;      // for one figure
  double budget_ms = 1000;  // no more are started after that, but 3
  int threads = 1;
  std::vector<Backend> backends;
};

struct StepKind {
  std::string_view name;
  std::string_view parameters;
  SamplingParams params;
};

// The kinds of requests; a mixed batch has them in turns.
const std::vector<StepKind>& StepKinds();
inline constexpr std::string_view kMixedStep = "mixed";

struct StepTiming {
  std::string_view kind;  // of StepKinds, or kMixedStep
  Backend backend;
  int64_t batch;
  Timing timing;  // of a whole step and a whole read of its rows
};

// Each kind alone, one row a step; then mixed batches. on_timing gets every timing when it is done.
void RunPipelineBench(const PipelineOptions& options,
                      const std::function<void(const StepTiming&)>& on_timing,
                      const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
