// Stages 10 to 15 on the sorted top of a row, a token a thread: semantics/select.h with the walks
// done by all threads at once.
#pragma once

#include "select/top_list.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"
#include "semantics/top_p.h"
#include "semantics/xtc.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

template <int kKeys>
__device__ int PruneTop(const Team& block, TokenList& list, int size, int needed) {
  uint64_t mine[kKeys];
  uint32_t keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = block.thread() + i * block.threads();
    mine[i] = place < size ? list.sorted[place] : 0;
    keys[i] = static_cast<uint32_t>(mine[i] >> 32);
  }
  if (block.thread() == 0) {
    list.least = ~0u;
    list.most = list.count = 0;
  }
  block.SyncBlock();
  const uint32_t least =
      max(1u, KeyOfRank(block, list, keys, needed, min(needed + needed / 16 + 4, block.threads())));
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (keys[i] < least) continue;
    const uint32_t place = atomicAdd(&list.count, 1u);
    if (place < kListCapacity) list.key[place] = mine[i];
  }
  block.SyncBlock();
  return static_cast<int>(list.count);
}

// Leaves of sorted[0, size) those that can be among the first `needed`, in key[0, result), in no
// order. More than the block has threads when too many are equal.
__device__ inline int PruneTop(const Team& block, TokenList& list, int size, int needed) {
  if (size <= block.threads()) return PruneTop<1>(block, list, size, needed);
  return size <= 3 * block.threads() ? PruneTop<3>(block, list, size, needed) : kListCapacity;
}

// How many threads sort a list of that many tokens: a power of two, because every barrier costs
// more with more of them.
__device__ inline int ThreadsToSort(int size) {
  int threads = 2 * kWarpSize;
  while (threads < size) threads *= 2;
  return threads;
}

// Sorts key[0, size) into sorted[0, size); all differ. `first` are the first threads of a block, at
// least `size`.
__device__ inline void SortTop(const FirstThreads& first, TokenList& list, int size) {
  const int thread = first.thread();
  if (size <= 4 * kWarpSize) {  // by ranks
    int width = 1;              // threads a key
    while (width < kWarpSize && 2 * width * size <= first.threads()) width *= 2;
    const int mine = thread / width;
    const uint64_t key = mine < size ? list.key[mine] : 0;
    int rank = 0;
    if (mine < size) {
#pragma unroll 4
      for (int other = thread % width; other < size; other += width) {
        rank += list.key[other] > key ? 1 : 0;
      }
    }
    for (int step = width / 2; step > 0; step /= 2) rank += __shfl_xor_sync(~0u, rank, step);
    if (mine < size && thread % width == 0) list.sorted[rank] = key;
    first.SyncBlock();
    return;
  }
  // Bitonic, a key a thread, descending; threads behind the list have 0, which goes to its end.
  uint64_t key = thread < size ? list.key[thread] : 0;
#pragma unroll 1
  for (int length = 2; length <= first.threads(); length *= 2) {
#pragma unroll 1
    for (int step = length / 2; step > 0; step /= 2) {
      uint64_t other;
      if (step < kWarpSize) {
        other = __shfl_xor_sync(~0u, key, step);
      } else {
        first.SyncBlock();
        list.sorted[thread] = key;
        first.SyncBlock();
        other = list.sorted[thread ^ step];
      }
      const bool descends = (thread & length) == 0;
      const bool is_lower = (thread & step) == 0;
      key = descends == is_lower ? max(key, other) : min(key, other);
    }
  }
  first.SyncBlock();
  list.sorted[thread] = key;
  first.SyncBlock();
}

// What is kept of the sorted top: the tokens of the threads from `begin` to before `end`.
struct KeptTop {
  float x;  // this thread's token
  int32_t id;
  float max;  // of the row
  int begin;
  int end;

  __device__ bool IsMine() const {
    return static_cast<int>(threadIdx.x) >= begin && static_cast<int>(threadIdx.x) < end;
  }
};

// The list is sorted and holds the tokens that TokensNeeded asks for.
__device__ inline KeptTop SelectFromTop(const FirstThreads& team, const TokenList& list, int size,
                                        const SelectParams& params, const NoiseKey& noise) {
  const int i = team.thread();
  KeptTop kept;
  kept.x = i < size ? ValueOf(list.sorted[i]) : -INFINITY;
  kept.id = i < size ? IdOf(list.sorted[i]) : -1;
  kept.max = ValueOf(list.sorted[0]);
  kept.begin = 0;
  kept.end = size;
  if (semantics::IsGreedy(params)) {
    kept.end = 1;
    return kept;
  }
  const Profile& profile = params.profile;
  const bool with_ties = profile.ties == Ties::kAll;
  const float scale = semantics::ScalesOf(params).filter;
  const uint64_t weight = semantics::Weight(kept.x, kept.max, scale);

  auto apply_min_p = [&] {
    const uint64_t least = semantics::Fixed40(params.min_p);
    kept.end = max(1, team.CountOfBlock(i < kept.end && weight >= least));
  };
  auto end_with_ties = [&](int end, int limit) {
    const float last = ValueOf(list.sorted[end - 1]);
    return team.CountOfBlock(i < limit && kept.x >= last);
  };

  if (params.min_p > 0 && profile.min_p_stage == MinPStage::kBeforeTopK) apply_min_p();
  if (params.top_k < kept.end) {
    kept.end = with_ties ? end_with_ties(params.top_k, kept.end) : params.top_k;
  }
  if (params.top_p < 1) {
    const uint64_t mine = i < kept.end ? weight : 0;
    const uint64_t before = team.SumBefore(mine);
    const uint64_t target = semantics::TargetMass(params.top_p, team.SumOfBlock(mine));
    const int end =
        max(1, team.CountOfBlock(i < kept.end &&
                                 semantics::TopPKeeps(before, target, profile.top_p_boundary)));
    kept.end = with_ties ? end_with_ties(end, kept.end) : end;
  }
  if (params.min_p > 0 && profile.min_p_stage == MinPStage::kLast) apply_min_p();
  if (params.xtc_probability > 0 && semantics::XtcCoinFalls(noise, params.xtc_probability)) {
    const uint64_t mass = team.SumOfBlock(i < kept.end ? weight : 0);
    const semantics::uint128_t least = semantics::XtcLeast(params.xtc_threshold, mass);
    const int above = team.CountOfBlock(i < kept.end && semantics::XtcCounts(weight, least));
    if (above >= 2) kept.begin = above - 1;
  }
  return kept;
}

__device__ inline Cut CutOfTop(const FirstThreads& team, const TokenList& list, const KeptTop& kept,
                               int size) {
  const int i = static_cast<int>(threadIdx.x);
  const float first = ValueOf(list.sorted[kept.begin]);
  const float last = ValueOf(list.sorted[kept.end - 1]);
  const int above_first = team.CountOfBlock(i < size && kept.x > first);
  const int above_last = team.CountOfBlock(i < size && kept.x > last);
  Cut cut;
  cut.count = kept.end - kept.begin;
  cut.lower = last;
  cut.ties_kept = kept.end - above_last;
  if (kept.begin > 0) {
    cut.upper = first;
    cut.ties_dropped = kept.begin - above_first;
  }
  return cut;
}

// What the first block of the team knows of a row that was decided by its top.
struct TopSelection {
  Cut cut;
  KeptTop kept;  // a token a thread
};

// By ThreadsToSort(size) threads; PruneTop has been here.
__device__ inline TopSelection SelectSorted(const FirstThreads& first, TokenList& list, int size,
                                            const SelectParams& params, const NoiseKey& key) {
  SortTop(first, list, size);
  TopSelection selection;
  selection.kept = SelectFromTop(first, list, size, params, key);
  selection.cut = CutOfTop(first, list, selection.kept, size);
  return selection;
}

}  // namespace sluice::cuda
