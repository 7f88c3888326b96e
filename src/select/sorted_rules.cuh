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

// Tokens in a block's shared memory, and room for as many beside them.
struct ListedTokens {
  uint64_t* tokens;
  uint64_t* room;
  int size;

  __device__ ListedTokens Moved(int size_there) const { return {room, tokens, size_there}; }
};

// Up to this many, every token is ranked by comparing it with all others.
inline constexpr int kMostRanked = 4 * kWarpSize;

// Those that can be among the first `needed`, by the first warp alone, which holds them all.
__device__ inline void PruneInWarp(TokenList& list, const ListedTokens& from, int needed) {
  constexpr int kKeys = 8;
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = i * kWarpSize + lane;
    keys[i] = place < from.size ? static_cast<uint32_t>(from.tokens[place] >> 32) : 0;
  }
  const uint32_t least = max(1u, KeyOfRankInWarp(keys, needed, needed + needed / 16 + 1));
  int count = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const uint32_t kept = __ballot_sync(~0u, keys[i] >= least);
    if (keys[i] >= least) {
      from.room[count + __popc(kept & ((1u << lane) - 1))] = from.tokens[i * kWarpSize + lane];
    }
    count += __popc(kept);
  }
  if (lane == 0) list.count = static_cast<uint32_t>(count);
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
    list.most = list.count = 0;
  }
  block.SyncBlock();
  const uint32_t least =
      max(1u, KeyOfRank(block, list, keys, needed, min(needed + needed / 16 + 4, block.threads())));
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (keys[i] < least) continue;
    from.room[atomicAdd(&list.count, 1u)] = mine[i];
  }
}

// The most that are needed of a list that is sorted: a block has room for some more than that.
__device__ inline int MostSorted(const Team& block) { return block.threads() - 16; }

// Leaves those that can be among the first `needed`. More than the block has threads when too many
// are equal.
__device__ inline ListedTokens PruneTop(const Team& block, TokenList& list,
                                        const ListedTokens& from, int needed) {
  if (from.size <= kMostRanked) return from;
  if (from.size <= 8 * kWarpSize) {
    if (block.thread() < kWarpSize) PruneInWarp(list, from, needed);
  } else if (from.size <= block.threads()) {
    PruneInBlock<1>(block, list, from, needed);
  } else if (from.size <= 3 * block.threads()) {
    PruneInBlock<3>(block, list, from, needed);
  } else {
    return from;
  }
  block.SyncBlock();
  return from.Moved(static_cast<int>(list.count));
}

// How many threads have a token each in a list of that many: a power of two, because every barrier
// costs more with more of them.
__device__ inline int ThreadsToSort(int size) {
  int threads = 2 * kWarpSize;
  while (threads < size) threads *= 2;
  return threads;
}

// The number of larger tokens of each; by the first threads of a block, more than tokens, which
// call visit(rank, token, its place in the list) for the tokens. All differ.
inline constexpr int kRankingThreads = 8 * kWarpSize;
template <typename Visit>
__device__ void RankTop(const ListedTokens& from, Visit visit) {
  const int thread = static_cast<int>(threadIdx.x);
  const int width = from.size <= 2 * kWarpSize ? 4 : 2;  // threads a token
  const int mine = thread / width;
  const uint64_t token = mine < from.size ? from.tokens[mine] : 0;
  int rank = 0;
#pragma unroll 4
  for (int other = thread % width; other < from.size; other += width) {
    rank += from.tokens[other] > token ? 1 : 0;
  }
  for (int step = width / 2; step > 0; step /= 2) rank += __shfl_xor_sync(~0u, rank, step);
  if (mine < from.size && thread % width == 0) visit(rank, token, mine);
}

// Bitonic, a token a thread, descending. `first` are the first threads of a block, ThreadsToSort of
// the size; those behind the list have 0, which goes to its end.
__device__ inline void SortTop(const FirstThreads& first, const ListedTokens& from) {
  const int thread = first.thread();
  uint64_t token = thread < from.size ? from.tokens[thread] : 0;
#pragma unroll 1
  for (int length = 2; length <= first.threads(); length *= 2) {
#pragma unroll 1
    for (int step = length / 2; step > 0; step /= 2) {
      uint64_t other;
      if (step < kWarpSize) {
        other = __shfl_xor_sync(~0u, token, step);
      } else {
        first.SyncBlock();
        from.room[thread] = token;
        first.SyncBlock();
        other = from.room[thread ^ step];
      }
      const bool descends = (thread & length) == 0;
      const bool is_lower = (thread & step) == 0;
      token = descends == is_lower ? max(token, other) : min(token, other);
    }
  }
  first.SyncBlock();
  from.room[thread] = token;
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

// Of sorted tokens, which are all that TokensNeeded asks for.
__device__ inline KeptTop SelectFromTop(const FirstThreads& team, const ListedTokens& sorted,
                                        const SelectParams& params, const NoiseKey& noise) {
  const int i = team.thread();
  const int size = sorted.size;
  KeptTop kept;
  kept.x = i < size ? ValueOf(sorted.tokens[i]) : -INFINITY;
  kept.id = i < size ? IdOf(sorted.tokens[i]) : -1;
  kept.max = ValueOf(sorted.tokens[0]);
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
    const float last = ValueOf(sorted.tokens[end - 1]);
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

__device__ inline Cut CutOfTop(const FirstThreads& team, const ListedTokens& sorted,
                               const KeptTop& kept) {
  const int i = team.thread();
  const float first = ValueOf(sorted.tokens[kept.begin]);
  const float last = ValueOf(sorted.tokens[kept.end - 1]);
  const int above_first = team.CountOfBlock(i < sorted.size && kept.x > first);
  const int above_last = team.CountOfBlock(i < sorted.size && kept.x > last);
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

// Sorted tokens, and for each the score that a warp beside the sorting ones gave it.
struct ScoredTop {
  ListedTokens sorted;
  bool has_scores;
};

// In shared memory.
struct ScoreMemory {
  uint32_t of_listed[kMostRanked];
  int32_t listed[kMostRanked];  // the place in the list of a sorted token
};

// Sorts a list of at most as many tokens as the block has threads. Threads behind ThreadsToSort of
// the size return with no further part in the row. score(token, the largest) may be called by other
// threads than those that sort, at the same time: code is cold when a kernel starts.
template <typename Score>
__device__ ScoredTop SortAndScore(const Team& block, const ListedTokens& from, ScoreMemory& scores,
                                  bool wants_scores, Score score) {
  const ListedTokens sorted = from.Moved(from.size);
  if (from.size > kMostRanked) {
    const int threads = ThreadsToSort(from.size);
    if (block.thread() < threads) SortTop(block.FirstThreads(threads), from);
    return {sorted, false};
  }
  const int scorer = block.thread() - kRankingThreads;
  if (scorer >= kMostRanked) return {sorted, wants_scores};
  if (scorer < 0) {
    RankTop(from, [&](int rank, uint64_t token, int place) {
      sorted.tokens[rank] = token;
      scores.listed[rank] = place;
    });
  } else if (wants_scores) {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kMostRanked; i += kWarpSize) {
      const int place = i + block.lane();
      if (place < from.size)
        largest = max(largest, static_cast<uint32_t>(from.tokens[place] >> 32));
    }
    largest = __reduce_max_sync(~0u, largest);
    if (scorer < from.size) {
      scores.of_listed[scorer] = score(from.tokens[scorer], semantics::ValueOfKey(largest));
    }
  }
  SyncThreads(kRankingThreads + kMostRanked);
  return {sorted, wants_scores};
}

// What the first block of the team knows of a row that was decided by its top.
struct TopSelection {
  Cut cut;
  KeptTop kept;  // a token a thread
};

// By a block; its first threads have what they keep.
__device__ inline TopSelection SelectSorted(const Team& block, const ListedTokens& from,
                                            ScoreMemory& scores, const SelectParams& params,
                                            const NoiseKey& key) {
  TopSelection selection = {};
  const ScoredTop top =
      SortAndScore(block, from, scores, false, [](uint64_t, float) { return 0u; });
  const FirstThreads first = block.FirstThreads(ThreadsToSort(from.size));
  if (first.thread() >= first.threads()) return selection;
  selection.kept = SelectFromTop(first, top.sorted, params, key);
  selection.cut = CutOfTop(first, top.sorted, selection.kept);
  return selection;
}

}  // namespace sluice::cuda
