// Heads in clusters: what centroids and radii certify, and how much of the head that opens, on a
// made head that is shaped like a model's and on one whose rows lie in clusters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/cluster_head.hpp"

namespace sluice::bench {

struct ClusterBenchOptions {
  int64_t vocab = 16384;
  int64_t dim = 128;
  std::vector<int64_t> clusters = {500, 1000, 2000, 4000, 8000};
  std::vector<double> epsilons = {0.01, 0.05, 0.1, 0.2};
  std::vector<int32_t> ks = {1, 10, 50};
  int64_t states = 32;
  int32_t rounds = 3;
  int threads = 1;
};

struct ClusterRow {
  std::string_view head;  // "made" or "planted"
  ClusterMetric metric;
  int64_t clusters;
  int32_t k;       // 0: softmax
  double epsilon;  // of the question
  // Means over the states.
  double rows_opened;  // of all rows, until the certificate held
  double certified;    // answers within the budget, an eighth of the rows, or twice that
  double tightness;  // the largest logit over the bound of the cluster that has it, of centred ones
  double variation;  // measured, of softmax answers; at most
  double violations;  // clusters with a logit above their bound: none
  bool is_exact;      // the first k tokens were the dense head's
};

void RunClusterBench(const ClusterBenchOptions& options,
                     const std::function<void(const ClusterRow&)>& on_row,
                     const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
