// Measures what the policy table (src/select/policy.h) says: every algorithm of the core on every
// kind of request, backend and size of vocabulary. One thread, fp32, each row in cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "select/policy.h"

namespace sluice::bench {

struct TuneOptions {
  std::vector<int64_t> vocabs = {256, 1024, 4096, 16384, 32768, 65536, 131072, 262144};
  // Different rows of each of the four kinds that are like a model's. Short rows get more of them,
  // until they hold kTunedElements: a branch predictor learns a few by heart.
  int64_t rows = 24;
  int64_t most_rows = 512;
  int64_t passes = 9;
  double budget_ms = 20.0;  // for an algorithm on rows of one kind, but 3 calls
  std::vector<Backend> backends;
};

inline constexpr int64_t kTunedElements = int64_t{1} << 20;

struct TunedAlgorithm {
  SelectAlgorithm algorithm;
  double ns;     // geometric mean over the kinds of rows, of the medians: each counts equally
  double worst;  // the largest multiple of the fastest time on the same kind of rows
};

struct TunedCell {
  Backend backend;
  SelectKind kind;
  int64_t vocab;
  std::vector<TunedAlgorithm> ranked;  // the fastest first

  // The first, or certified where that is not slower by more than kTolerance: fewer changes.
  const TunedAlgorithm& Winner() const;
};
inline constexpr double kTolerance = 1.05;

// What a kind of request is measured with.
SelectParams TunedParams(SelectKind kind);

// In the order of the table: by backend, kind and vocabulary. Throws std::runtime_error when an
// algorithm does not give what the reference gives.
std::vector<TunedCell> RunTuneBench(const TuneOptions& options,
                                    const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
