// The certified head on a model's own head and hidden states: those of a text, window by window,
// and those of the model's own continuations of it. HeadCheck compares each with the dense head.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/head/head_check.h"
#include "sluice/checkpoint.hpp"

namespace sluice::bench {

struct TrainedHeadOptions {
  int64_t states = 25000;  // of each source; of the text no more than it has
  std::vector<int64_t> clusters = {500, 1000};
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

struct TrainedHeadResult {
  std::string_view source;  // "text", "own"
  std::vector<HeadAnswers> answers;
  std::vector<IntervalFigures> intervals;
  std::vector<ClusterFigures> clusters;
};

// Throws Error when the text has too few tokens to begin with.
std::vector<TrainedHeadResult> RunTrainedHead(
    const Checkpoint& checkpoint, std::string_view text, const TrainedHeadOptions& options,
    const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
