// Log-probabilities and ranks of tokens of a row with a vocabulary that is split among ranks.
#pragma once

#include "parallel/shard_rank.h"

namespace sluice {

// The state of a row on all ranks after the first exchange, and this one's part of its Cut.
struct WholeRow {
  RowStatus status = RowStatus::kEmptySupport;
  float max = -semantics::Infinity();
  float sampled = 0.0f;
  Cut own_cut = {};
  float temperature = 1.0f;
};

// wholes: memory, which grows to one a row.
void MergeLogprobs(ShardRank& rank, const LogprobInput& own, std::span<TokenResult> results,
                   const Execution& execution, std::vector<WholeRow>& wholes);

}  // namespace sluice
