// Log-probabilities and ranks of tokens of a row whose vocabulary is split among ranks.
#pragma once

#include "parallel/shard_rank.h"

namespace sluice {

void MergeLogprobs(ShardRank& rank, const LogprobInput& own, std::span<TokenResult> results,
                   const Execution& execution);

}  // namespace sluice
