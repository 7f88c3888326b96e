// The top of a row in one read: guess a threshold from a sample, list what reaches it, certify that
// the list holds the first k tokens.
//
// The guess is the value at a rank of the sample where, by the hypergeometric law, fewer than k
// tokens of the row lie above it in one row of a million; a sample of everything needs no guess.
// The certificate is a count: at least k listed tokens reach the largest threshold of the team, or
// the thresholds left nothing out.
#pragma once

#include "backend/row_start.cuh"
#include "backend/token_list.cuh"
#include "semantics/temperature.h"

namespace sluice::cuda {

// The largest k that a list rarely overflows: a fourteenth of the row sampled, as from 512 rows on,
// asks for 2100 tokens of it, give or take 180.
inline constexpr int kMostTopK = kListCapacity / 2;

// How many tokens the parameters need the list to hold; 0: a list does not decide them.
__device__ inline int TokensNeeded(const SelectParams& params) {
  if (semantics::IsGreedy(params)) return 1;
  const bool joint = params.profile.top_k_top_p == TopKTopP::kJoint && params.top_p < 1;
  const bool whole_row = joint || params.top_n_sigma > 0 || params.typical_p < 1;
  return !whole_row && params.top_k > 0 && params.top_k <= kMostTopK ? params.top_k : 0;
}

// The largest key of a few probed, from `low` to `high`, that at least `rank` keys reach, `low`
// when there are too few. count_from(key, probe): how many reach it.
template <typename CountFrom>
__device__ uint32_t BisectToRank(uint32_t low, uint32_t high, int rank, int enough,
                                 CountFrom count_from) {
#pragma unroll 1
  for (int probe = 0; low < high; ++probe) {
    const uint32_t middle = high - (high - low) / 2;
    const int count = count_from(middle, probe);
    if (count >= rank) {
      low = middle;
      if (count <= enough) break;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The least and the largest key of a warp, and how many reach one. kKeys a lane.
template <int kKeys>
struct KeysOfWarp {
  __device__ explicit KeysOfWarp(const uint32_t (&of_lane)[kKeys]) : keys(of_lane) {
    uint32_t low = keys[0], high = keys[0];
#pragma unroll
    for (int i = 1; i < kKeys; ++i) {
      low = min(low, keys[i]);
      high = max(high, keys[i]);
    }
    least = __reduce_min_sync(~0u, low);
    most = __reduce_max_sync(~0u, high);
  }
  __device__ int CountFrom(uint32_t key) const {
    int count = 0;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) count += keys[i] >= key ? 1 : 0;
    return __reduce_add_sync(~0u, count);
  }

  const uint32_t (&keys)[kKeys];
  uint32_t least;
  uint32_t most;
};

// Among the keys of one warp, which has no barriers to wait at.
template <int kKeys>
__device__ uint32_t KeyOfRankInWarp(const uint32_t (&keys)[kKeys], int rank, int enough) {
  const KeysOfWarp<kKeys> warp(keys);
  return BisectToRank(warp.least, warp.most, rank, enough,
                      [&](uint32_t key, int) { return warp.CountFrom(key); });
}

// Among the keys of a block. list.least and list.most: as Clear leaves them.
template <int kKeys>
__device__ uint32_t KeyOfRank(const Team& team, TokenList& list, const uint32_t (&keys)[kKeys],
                              int rank, int enough) {
  const KeysOfWarp<kKeys> warp(keys);
  if (team.thread() < kMostProbes) list.counts[team.thread()] = 0;
  if (team.lane() == 0) {
    atomicMin(&list.least, warp.least);
    atomicMax(&list.most, warp.most);
  }
  team.SyncBlock();
  return BisectToRank(list.least, list.most, rank, enough, [&](uint32_t key, int probe) {
    const int of_warp = warp.CountFrom(key);
    if (team.lane() == 0) atomicAdd(&list.counts[probe], static_cast<uint32_t>(of_warp));
    team.SyncBlock();
    return static_cast<int>(list.counts[probe]);
  });
}

// The threshold of the list: the same in all blocks where groups of threads are fine enough for
// the rank, else one for each block.
template <DType kDType>
__device__ float GuessThreshold(const Team& team, const VectorSlice<kDType>& slice,
                                const FirstVectors& loaded, const RowStart& start, TokenList& list,
                                int needed) {
  const float share = slice.SampledShare();
  auto rank_of = [&](float expected) {  // such that `expected` of the wanted tokens are above it
    return share < 1.0f ? static_cast<int>(expected + 3.5f * sqrtf(expected) + 4.0f) : needed;
  };
  const int rank = rank_of(static_cast<float>(needed) * share);
  if (rank <= kGroups / 2) {
    if (team.thread() < kWarpSize) {
      const OfGroups<uint32_t> largest(team, start.largest);
      const uint32_t key = KeyOfRankInWarp(largest.value, rank, rank + rank / 16 + 1);
      if (team.lane() == 0) list.threshold = key;
    }
    team.SyncBlock();
    return semantics::ValueOfKey(list.threshold);
  }
  uint32_t keys[kVectorsAtOnce];
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce; ++i) {
    keys[i] = semantics::OrderKey(Vector<kDType>(loaded[i]).Largest());
  }
  const float expected = static_cast<float>(needed) * share / static_cast<float>(team.blocks());
  const int of_block = static_cast<int>(expected + 3.5f * sqrtf(expected) + 4.0f);
  return semantics::ValueOfKey(KeyOfRank(team, list, keys, of_block, of_block + of_block / 8));
}

// The list of one row: the number of tokens, in the first block's `sorted`, in no order yet; or -1
// when the row has to be selected otherwise. 0 is a row without support. Only the first block gets
// the answer; the others return when it has read their lists.
template <DType kDType>
__device__ int ListTop(const Team& team, const VectorSlice<kDType>& slice, FirstVectors& loaded,
                       const RowStart& start, TokenList& list, int needed) {
  using Tokens = Eight<kDType>;
  Clear(team, list);
  team.SyncBlock();
  // Of a NaN in the sample: some threshold; what is not below it spoils the list.
  const float threshold =
      fmaxf(GuessThreshold(team, slice, loaded, start, list, needed), semantics::kLowestValue);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    bool all_below = true;  // false for a NaN
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) all_below &= tokens.x[e] < threshold;
    if (!all_below) Note(list, tokens);
  });
  team.SyncBlock();
  ListNoted(team, slice, list, [&](float x, int) { return !(x < threshold); });
  if (team.thread() == 0) list.threshold = semantics::OrderKey(threshold);
  team.Sync();

  const PulledLists pulled = PullLists(team, list);
  const bool has_all = pulled.threshold == semantics::OrderKey(semantics::kLowestValue);
  return has_all || pulled.size >= needed ? pulled.size : -1;
}

}  // namespace sluice::cuda
