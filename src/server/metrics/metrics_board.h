// The last report of each loop, for /metrics.
//
// A loop that does not answer in time counts with its last report: so counters never go back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "server/completions.h"
#include "server/route.h"
#include "sluice/client.hpp"

namespace sluice::server {

struct LoopMetrics {
  CompletionCounters completions = {};
  ClientCounters client = {};
  RouteCounts routes = {};
  std::vector<EngineState> engines = {};

  bool has_engine() const {  // one that is ready
    return std::ranges::any_of(
        engines, [](const EngineState& engine) { return engine.health == EngineHealth::kReady; });
  }
};

class MetricsBoard {
 public:
  explicit MetricsBoard(size_t loops) : loops_(loops) {}

  void Put(size_t loop, LoopMetrics metrics) {
    const std::lock_guard lock(mutex_);
    loops_[loop] = std::move(metrics);
  }
  std::vector<LoopMetrics> All() const {
    const std::lock_guard lock(mutex_);
    return loops_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<LoopMetrics> loops_;
};

}  // namespace sluice::server
