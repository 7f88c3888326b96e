// Sampling over a vocabulary that is split among shards, without gathering the logits.
//
// Shards merge exactly: the order is total, masses are integer sums, and noise is keyed by the
// global token id. The answer is the one that the unsplit row would give, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/draw.hpp"

namespace sluice {

// The tokens [first_id, first_id + logits.vocab). Shards are passed in ascending order, adjoin,
// and may differ in width and dtype; each has a row for every row of the batch.
struct Shard {
  LogitsView logits = {};
  int32_t first_id = 0;
};

struct ShardInput {
  std::span<const Shard> shards = {};
  std::span<const SelectParams> params = {};  // one, or one a row
  std::span<const NoiseKey> keys = {};        // read by XTC and by draws; else it may be empty
  Limits limits = {};
};

size_t ShardsWorkspaceBytes(const ShardInput& input, const Execution& execution);

void SelectShards(const ShardInput& input, std::span<Cut> cuts, const Execution& execution);

// The part of a whole row's Cut that falls into one shard: ties belong to the lower ids first.
// ties_before_upper and ties_before_lower: tokens equal to that boundary on the shards before, not
// negative. The count stays that of the whole row.
Cut ShardCut(const Cut& cut, int64_t ties_before_upper, int64_t ties_before_lower);

void SampleShards(const ShardInput& input, DrawMethod method, std::span<TokenResult> results,
                  const Execution& execution);

}  // namespace sluice
