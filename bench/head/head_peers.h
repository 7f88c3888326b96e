// The peers of the certified head, on a model's own head and hidden states or on made ones.
// Clusters of rows
// with a certificate: how many rows the softmax takes to within epsilon, and how far off it is
// then. And heads without a certificate: how often they are wrong. No times: counts alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/head/heads.h"
#include "sluice/checkpoint.hpp"
#include "sluice/research/clusters.hpp"

namespace sluice::bench {

struct HeadPeersOptions {
  int64_t states = 500;  // of each source; of the text, and of a made head, no more than it has
  std::vector<int64_t> clusters = {500, 1000, 2000, 4000, 8000};  // those below the vocabulary
  int32_t rounds = 10;                                            // of k-means
  std::vector<double> epsilons = {0.01, 0.02, 0.05, 0.1, 0.2};
  int64_t probed_clusters = 1000;  // as an index of neighbours; at most half of the vocabulary
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

// The softmax at T = 1 to within epsilon by the ball bound. Rows: what the certificate takes, were
// there no budget.
struct ClusterSoftmax {
  int64_t clusters = 0;  // those with rows
  double epsilon = 0.0;
  int64_t states = 0;
  int64_t certified = 0;        // within the default budget, an eighth of the rows
  int64_t whole = 0;            // took all rows
  int64_t violated = 0;         // the total variation was above epsilon
  double opened = 0.0;          // the sum over states of the share of rows
  double variation = 0.0;       // of the measured total variation
  double most_variation = 0.0;  // the largest
};

// A head that takes its logits for the true ones.
struct UncertifiedHead {
  std::string method;
  double bytes_share = 0.0;  // read, of one read of the head in its own type
  int64_t states = 0;
  int64_t greedy = 0;           // the first token is another
  int64_t sampled = 0;          // the token of the whole softmax with the same noise is another
  int64_t top50 = 0;            // the set of the first 50 is another
  double variation = 0.0;       // the sum over states of the total variation at T = 1
  double most_variation = 0.0;  // the largest
};

struct HeadPeersResult {
  std::string_view source;  // "text", "own"; "made"
  std::vector<ClusterSoftmax> clusters;
  std::vector<UncertifiedHead> uncertified;
};

// Throws Error when the text has too few tokens to begin with.
std::vector<HeadPeersResult> RunHeadPeers(
    const Checkpoint& checkpoint, std::string_view text, const HeadPeersOptions& options,
    const std::function<void(const std::string&)>& on_progress);

// Of a made head, one source.
HeadPeersResult RunHeadPeers(const MadeHead& made, const HeadPeersOptions& options,
                             const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
