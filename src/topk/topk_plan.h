// How topk runs on a GPU: the policy table, and checks of a plan that the caller chooses instead.
#pragma once

#include <cstddef>

#include "sluice/cuda/topk.hpp"

namespace sluice::cuda {

// The number of scores that a warp marks at once.
inline constexpr int kTileScores = 1024;
inline constexpr int kTileWords = kTileScores / 32;

inline constexpr int32_t kMostCandidates = 16384;

// Words that mark the scores of a block's slice, for any alignment of the row.
int64_t WordsOfBlock(int64_t columns, int64_t blocks);

// Shared memory of a block that marks `words` and ranks up to `capacity` candidates.
using SharedBytesOf = size_t (*)(int64_t words, int64_t capacity);

TopkPlan PlanFor(const TopkInput& input, SharedBytesOf shared_bytes);

// Throws Error.
void CheckPlan(const TopkPlan& plan, const TopkInput& input, SharedBytesOf shared_bytes);

}  // namespace sluice::cuda
