// The top of a row in one read: guess a threshold from a sample, list what reaches it, certify that
// the list holds the first k tokens.
//
// The guess is the value at a rank of the sample where, by the hypergeometric law, fewer than k
// tokens of the row lie above it in one row of a million. The certificate is a count: at least k
// listed tokens reach the largest threshold of the team, or the thresholds left nothing out.
#pragma once

#include "backend/token_list.cuh"
#include "backend/vector_slice.cuh"
#include "semantics/order.h"
#include "semantics/temperature.h"

namespace sluice::cuda {

// The largest k that a list rarely overflows, and that leaves room in a block for more than k
// tokens when they are sorted.
__device__ inline int MostTopK(const Team& team) { return team.threads() - 16; }

// How many tokens the parameters need the list to hold; 0: a list does not decide them.
__device__ inline int TokensNeeded(const Team& team, const SelectParams& params) {
  if (semantics::IsGreedy(params)) return 1;
  const bool joint = params.profile.top_k_top_p == TopKTopP::kJoint && params.top_p < 1;
  const bool whole_row = joint || params.top_n_sigma > 0 || params.typical_p < 1;
  return !whole_row && params.top_k > 0 && params.top_k <= MostTopK(team) ? params.top_k : 0;
}

// The largest key of a few probed that at least `rank` of the block's keys reach; the least of all
// when there are too few. kKeys a thread.
template <int kKeys>
__device__ uint32_t KeyOfRank(const Team& team, TokenList& list, const uint32_t (&keys)[kKeys],
                              int rank, int enough) {
  uint32_t least = keys[0], most = keys[0];
#pragma unroll
  for (int i = 1; i < kKeys; ++i) {
    least = min(least, keys[i]);
    most = max(most, keys[i]);
  }
  least = __reduce_min_sync(~0u, least);
  most = __reduce_max_sync(~0u, most);
  if (team.lane() == 0) {
    atomicMin(&list.least, least);
    atomicMax(&list.most, most);
  }
  team.SyncBlock();
  uint32_t low = list.least;
  uint32_t high = list.most;
#pragma unroll 1
  for (int probe = 0; probe < 20 && low < high; ++probe) {
    const uint32_t middle = high - (high - low) / 2;
    int count = 0;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) count += team.CountOfBlock(keys[i] >= middle);
    if (count >= rank) {
      low = middle;
      if (count <= enough) break;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The list of one row. All threads of the team call it and get the same answer: the number of
// tokens, in the first block's `sorted`, in no order yet; or -1 when the row has to be selected
// otherwise. 0 is a row without support.
template <DType kDType>
__device__ int ListTop(const Team& team, const VectorSlice<kDType>& slice,
                       FirstVectors<kDType>& loaded, TokenList& list, int needed) {
  using Unpacked = Vector<kDType>;
  constexpr int kAtOnce = kVectorsAtOnce<kDType>;
  Clear(team, list);
  team.SyncBlock();

  // The sample: the first vectors. `expected` of the wanted tokens are in it.
  const int pieces = max(1, slice.pieces_a_block());
  const int sampled = min(kAtOnce * (team.threads() / kWarpSize), pieces);
  const float expected = static_cast<float>(needed) / static_cast<float>(team.blocks()) *
                         static_cast<float>(sampled) / static_cast<float>(pieces);
  const int rank = static_cast<int>(expected + 3.5f * sqrtf(expected) + 4.0f);
  uint32_t keys[kAtOnce];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const Unpacked vector(loaded[i]);
    float largest = vector.x[0];
#pragma unroll
    for (int e = 1; e < Unpacked::kElements; ++e) largest = fmaxf(largest, vector.x[e]);
    keys[i] = semantics::OrderKey(largest);  // of a NaN alone: some key, and it spoils the list
  }
  uint32_t threshold_key;
  if (rank <= team.threads() / 8) {  // few enough that the largest of a thread's vectors serves
    uint32_t largest[1] = {keys[0]};
#pragma unroll
    for (int i = 1; i < kAtOnce; ++i) largest[0] = max(largest[0], keys[i]);
    threshold_key = KeyOfRank(team, list, largest, rank, rank + rank / 4 + 4);
  } else {
    threshold_key = KeyOfRank(team, list, keys, rank, rank + rank / 8);
  }
  const float threshold = fmaxf(semantics::ValueOfKey(threshold_key), semantics::kLowestValue);

  auto push = [&](float x, int id) {
    if (x < threshold) return;
    if (!(x < INFINITY)) atomicOr(&list.is_spoilt, 1u);
    Push(list, x, id);
  };
  slice.ForEachAtEdges(push);
  slice.Stream(loaded, [&](const Unpacked& vector, int id) {
    bool all_below = true;  // false for a NaN
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) all_below &= vector.x[e] < threshold;
    if (all_below) return;
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) push(vector.x[e], id + e);
  });
  if (team.thread() == 0) list.threshold = semantics::OrderKey(threshold);
  team.Sync();

  // The first block gets what is complete: no block left out anything from the largest threshold
  // on.
  const uint32_t largest = team.ReduceBlocks(
      0u, [&](int r) { return team.Of(r, &list)->threshold; },
      [](uint32_t a, uint32_t b) { return max(a, b); });
  const int gathered = Gather(team, list, largest);
  const bool has_all = largest == semantics::OrderKey(semantics::kLowestValue);
  return has_all || gathered >= needed ? gathered : -1;
}

}  // namespace sluice::cuda
