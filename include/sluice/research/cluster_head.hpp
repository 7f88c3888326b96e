// Rows in clusters as a head that serves: `sluice generate --head clusters`. The tokens are the
// dense head's: the first k are certified, and where the certificate fails every row is computed.
// docs/research/csv-decode.md has the cost. Link Sluice::research.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sluice/research/clusters.hpp"
#include "sluice/top_k_head.hpp"

namespace sluice {
class Tokenizer;
}

namespace sluice::research {

// The tokens below `vocab` of digits and symbols alone, white space aside, ascending. Their rows
// lie far from one another.
std::vector<int32_t> FineTokens(const Tokenizer& tokenizer, int64_t vocab);

// `options` with clusters of half the size for `tokens`, of a head with `vocab` rows: no more
// clusters than it has other tokens.
ClusterOptions WithFineTokens(const ClusterOptions& options, std::span<const int32_t> tokens,
                              int64_t vocab);

class ClusterHead final : public TopKHead {
 public:
  // As ClusterSearch. The first questions of each request have the larger budget.
  ClusterHead(const DenseHead& head, HeadClusters clusters, const ClusterBudget& budget = {},
              Backend backend = Backend::kAuto);

  TopKAnswer TopK(const MatrixView& hidden, int64_t position, std::span<int32_t> ids,
                  std::span<float> logits) override;

  const HeadClusters& clusters() const { return clusters_; }

 private:
  HeadClusters clusters_;
  ClusterSearch search_;
  int64_t row_bytes_;
  int64_t bound_bytes_;
};

}  // namespace sluice::research
