// Stages 10 to 15 on the sorted top of a row, a token a thread: semantics/select.h with the walks
// done by all threads at once.
#pragma once

#include "select/prune_top.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"
#include "semantics/top_p.h"
#include "semantics/xtc.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

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
  int most_end;   // `end` for certain, unless the mass of the whole row leaves it in doubt
  bool is_known;  // else the list says too little

  __device__ bool IsCertain() const { return is_known && end == most_end; }
  __device__ bool MayBeMine() const {
    return static_cast<int>(threadIdx.x) >= begin && static_cast<int>(threadIdx.x) < most_end;
  }
  __device__ bool IsMine() const {
    return static_cast<int>(threadIdx.x) >= begin && static_cast<int>(threadIdx.x) < end;
  }
};

// Of sorted tokens, which are all that PlanOfTop asks for. whole: null when no rule looks at the
// whole row.
__device__ inline KeptTop SelectFromTop(const FirstThreads& team, const ListedTokens& sorted,
                                        const SelectParams& params, const NoiseKey& noise,
                                        const WholeMass* whole) {
  const int i = team.thread();
  const int size = sorted.size;
  KeptTop kept;
  kept.x = i < size ? ValueOf(sorted.tokens[i]) : -INFINITY;
  kept.id = i < size ? IdOf(sorted.tokens[i]) : -1;
  kept.max = ValueOf(sorted.tokens[0]);
  kept.begin = 0;
  kept.end = size;
  kept.is_known = true;
  if (semantics::IsGreedy(params)) {
    kept.end = kept.most_end = 1;
    return kept;
  }
  bool is_whole = whole != nullptr && !whole->is_listed;
  const Profile& profile = params.profile;
  const bool with_ties = profile.ties == Ties::kAll;
  const float scale = semantics::ScalesOf(params).filter;
  const uint64_t weight = semantics::Weight(kept.x, kept.max, scale);

  auto end_of_min_p = [&] {
    const uint64_t least = semantics::Fixed40(params.min_p);
    return max(1, team.CountOfBlock(i < size && weight >= least));
  };
  auto end_with_ties = [&](int end, int limit) {
    const float last = ValueOf(sorted.tokens[end - 1]);
    return team.CountOfBlock(i < limit && kept.x >= last);
  };

  const bool min_p_first = profile.min_p_stage == MinPStage::kBeforeTopK;
  if (params.min_p > 0 && min_p_first) {
    kept.end = end_of_min_p();
    if (is_whole) kept.is_known = kept.end < size;
    is_whole = false;  // the other rules look at what is left, which is listed
  }
  const int before_top_k = kept.end;
  if (params.top_k > 0 && params.top_k < kept.end) {
    kept.end = with_ties ? end_with_ties(params.top_k, kept.end) : params.top_k;
  }
  kept.most_end = kept.end;
  if (params.top_p < 1) {
    const bool joint = profile.top_k_top_p == TopKTopP::kJoint;
    const int measured = joint ? before_top_k : kept.end;
    const uint64_t mine = i < measured ? weight : 0;
    const uint64_t before = team.SumBefore(mine);
    const uint64_t listed = team.SumOfBlock(mine);
    auto end_of = [&](uint64_t total) {
      const uint64_t target = semantics::TargetMass(params.top_p, total);
      const int end =
          max(1, team.CountOfBlock(i < measured &&
                                   semantics::TopPKeeps(before, target, profile.top_p_boundary)));
      return with_ties ? end_with_ties(end, measured) : end;
    };
    const int least_end = end_of(is_whole ? whole->least : listed);
    const int most_end = is_whole ? end_of(whole->most) : least_end;
    if (is_whole) {  // the boundary is in the list if what is listed reaches it
      const uint64_t target = semantics::TargetMass(params.top_p, whole->most);
      kept.is_known = listed >= semantics::ExclusiveTarget(target, profile.top_p_boundary);
    }
    kept.end = min(kept.end, least_end);
    kept.most_end = min(kept.most_end, most_end);
  }
  if (params.min_p > 0 && !min_p_first) {
    const int end = end_of_min_p();
    if (is_whole && params.top_p == 1) kept.is_known = end < size;
    kept.end = min(kept.end, end);
    kept.most_end = min(kept.most_end, end);
  }
  if (params.xtc_probability > 0 && semantics::XtcCoinFalls(noise, params.xtc_probability)) {
    kept.is_known &= kept.end == kept.most_end;
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

// By the first block of the team; its first threads have what they keep, which need not be certain.
// whole: null when no rule looks at the whole row.
__device__ inline TopSelection SelectSorted(const Team& team, const ListedTokens& from,
                                            ScoreMemory& scores, const SelectParams& params,
                                            const NoiseKey& key, const ListedTop* whole,
                                            int vocab) {
  TopSelection selection = {};
  const ScoredTop top =
      SortAndScore(team.Block(), from, scores, false, [](uint64_t, float) { return 0u; });
  const FirstThreads first = team.FirstThreads(ThreadsToSort(from.size));
  if (first.thread() >= first.threads()) return selection;
  WholeMass mass;
  if (whole != nullptr) mass = WholeMassOf(team, *whole, ValueOf(top.sorted.tokens[0]), vocab);
  selection.kept =
      SelectFromTop(first, top.sorted, params, key, whole == nullptr ? nullptr : &mass);
  selection.cut = CutOfTop(first, top.sorted, selection.kept);
  return selection;
}

}  // namespace sluice::cuda
