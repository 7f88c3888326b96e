// What a list must keep of itself to be sorted: those among the first k, or those that have the
// mass which top-p can want of the whole row.
#pragma once

#include "select/top_list.cuh"
#include "semantics/top_p.h"

namespace sluice::cuda {

// Tokens in a block's shared memory, and room for as many beside them.
struct ListedTokens {
  uint64_t* tokens;
  uint64_t* room;
  int size;

  __device__ ListedTokens Moved(int size_there) const { return {room, tokens, size_there}; }
};

// Up to this many, every token is ranked by comparing it with all others.
inline constexpr int kMostRanked = 4 * kWarpSize;

// The mass of a whole row, as far as one read knows it.
struct WholeMass {
  uint64_t least;
  uint64_t most;
  bool is_listed;  // the list has the whole row, so its mass is known
};

// Of the row whose top was listed.
__device__ inline WholeMass WholeMassOf(const Team& team, const ListedTop& top, float max,
                                        int vocab) {
  const float unit = top.unit.WeightOf(max);
  // A largest value far above the sample would be known too badly, and of huge values rounding may
  // leave no unit at all; false for a NaN.
  const bool is_known = unit > 0x1p-100f && unit < 0x1p64f && top.mass < 0x1p100;
  if (!is_known) return {0, UINT64_MAX, top.has_all};
  // Weights are known to 1e-5, but for the unit in which they are integers, and a thread adds up
  // its eights in fp32.
  const double doubt =
      1e-5 + 0x1p-40 * vocab + 0x1p-24 * (vocab / (8 * team.threads() * team.blocks()) + 16);
  const double total = top.mass * static_cast<double>(0x1p40f / unit);
  return {static_cast<uint64_t>(total * (1.0 - doubt)),
          static_cast<uint64_t>(total * (1.0 + doubt)), top.has_all};
}

// The order keys of listed tokens, some a lane; 0 where there is none.
template <int kKeys>
__device__ void LoadKeysInWarp(const ListedTokens& from, uint32_t (&keys)[kKeys]) {
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = i * kWarpSize + static_cast<int>(threadIdx.x);
    keys[i] = place < from.size ? static_cast<uint32_t>(from.tokens[place] >> 32) : 0;
  }
}

// Leaves the tokens whose keys are not below `least`, which is not 0.
template <int kKeys>
__device__ void KeepInWarp(TokenList& list, const ListedTokens& from, const uint32_t (&keys)[kKeys],
                           uint32_t least) {
  const int lane = static_cast<int>(threadIdx.x);
  int count = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const uint32_t kept = __ballot_sync(~0u, keys[i] >= least);
    if (keys[i] >= least) {
      from.room[count + __popc(kept & ((1u << lane) - 1))] = from.tokens[i * kWarpSize + lane];
    }
    count += __popc(kept);
  }
  if (lane == 0) list.pruned = static_cast<uint32_t>(count);
}

// Those that can be among the first `needed`, by the first warp alone, which holds them all.
inline constexpr int kRankKeys = 8;  // a lane
__device__ inline void PruneInWarp(TokenList& list, const ListedTokens& from, int needed) {
  uint32_t keys[kRankKeys];
  LoadKeysInWarp(from, keys);
  KeepInWarp(list, from, keys, max(1u, KeyOfRankInWarp(keys, needed, needed + needed / 16 + 1)));
}

// Those that top-p can keep of the whole row, by the first warp alone: from some key on they have
// the mass that it wants.
inline constexpr int kNucleusKeys = 20;  // a lane: a list has seldom more than 500 tokens
__device__ inline void PruneByMassInWarp(const Team& team, TokenList& list,
                                         const ListedTokens& from, const ListedTop& top,
                                         const SelectParams& params, int vocab) {
  constexpr int kCoarse = 20;  // bits of a weight that are left out here
  uint32_t keys[kNucleusKeys];
  LoadKeysInWarp(from, keys);
  const KeysOfWarp<kNucleusKeys> warp(keys);
  const float max = semantics::ValueOfKey(warp.most);
  const float scale = semantics::ScalesOf(params).filter;
  uint32_t weights[kNucleusKeys];
#pragma unroll
  for (int i = 0; i < kNucleusKeys; ++i) {
    const uint64_t weight = semantics::Weight(semantics::ValueOfKey(keys[i]), max, scale);
    weights[i] = keys[i] == 0 ? 0 : static_cast<uint32_t>(weight >> kCoarse);
  }
  const WholeMass whole = WholeMassOf(team, top, max, vocab);
  const uint64_t target = semantics::TargetMass(params.top_p, whole.most) >> kCoarse;
  // All tokens reach the threshold of the list.
  const uint32_t least = BisectKeys(list.threshold, warp.most, [&](uint32_t key, int) {
    uint32_t mass = 0;
#pragma unroll
    for (int i = 0; i < kNucleusKeys; ++i) mass += keys[i] >= key ? weights[i] : 0;
    return Probed{__reduce_add_sync(~0u, mass) > target, warp.CountFrom(key) <= 2 * kWarpSize};
  });
  KeepInWarp(list, from, keys, least);
}

template <int kKeys>
__device__ void PruneInBlock(const Team& block, TokenList& list, const ListedTokens& from,
                             int needed) {
  uint64_t mine[kKeys];
  uint32_t keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = block.thread() + i * block.threads();
    mine[i] = place < from.size ? from.tokens[place] : 0;
    keys[i] = static_cast<uint32_t>(mine[i] >> 32);
  }
  if (block.thread() == 0) {
    list.least = ~0u;
    list.most = list.pruned = 0;
  }
  block.SyncBlock();
  const uint32_t least =
      max(1u, KeyOfRank(block, list, keys, needed, min(needed + needed / 16 + 4, block.threads())));
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (keys[i] < least) continue;
    from.room[atomicAdd(&list.pruned, 1u)] = mine[i];
  }
}

// Leaves those that can be kept by what needs the list. More than the block has threads when so
// many are needed, or too many are equal.
__device__ inline ListedTokens PruneTop(const Team& team, TokenList& list, const ListedTop& top,
                                        const TopPlan& plan, const SelectParams& params,
                                        int vocab) {
  const Team block = team.Block();
  const ListedTokens from{list.tokens, list.room, top.size};
  const bool is_first_warp = block.thread() < kWarpSize;
  if (from.size <= kMostRanked) return from;
  if (plan.is_whole) {
    const bool min_p_first =
        params.min_p > 0 && params.profile.min_p_stage == MinPStage::kBeforeTopK;
    const bool by_mass =
        params.top_p < 1 && !min_p_first && !top.has_all && from.size <= kNucleusKeys * kWarpSize;
    if (!by_mass) return from;
    if (is_first_warp) PruneByMassInWarp(team, list, from, top, params, vocab);
  } else if (plan.needed > block.threads() - 16) {
    return from;
  } else if (from.size <= kRankKeys * kWarpSize) {
    if (is_first_warp) PruneInWarp(list, from, plan.needed);
  } else if (from.size <= block.threads()) {
    PruneInBlock<1>(block, list, from, plan.needed);
  } else if (from.size <= 3 * block.threads()) {
    PruneInBlock<3>(block, list, from, plan.needed);
  } else {
    return from;
  }
  block.SyncBlock();
  return from.Moved(static_cast<int>(list.pruned));
}

}  // namespace sluice::cuda
