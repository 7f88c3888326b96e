// Stages 10 to 15 on the sorted top of a row, one token a thread: kRulesOfTop of semantics/rules.h
// in their order, with the walks done by all threads at once, and what the list leaves in doubt.
#pragma once

#include "cuda/cut_ids.cuh"
#include "select/cuda/prune_top.cuh"
#include "select/cuda/typical_bound.cuh"
#include "semantics/draw/noise.h"
#include "semantics/filters/min_p.h"
#include "semantics/filters/top_p.h"
#include "semantics/filters/xtc.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

// How many threads have a token each in a list of that many: a power of two, because every barrier
// costs more with more of them.
__device__ inline int ThreadsToSort(int size) {
  int threads = 2 * kWarpSize;
  while (threads < size) threads *= 2;
  return threads;
}

// In shared memory.
struct ScoreMemory {
  uint64_t of_warps[kMostRanked];  // tokens, sorted by warps
  uint32_t of_listed[kMostRanked];
  int32_t listed[kMostRanked];  // the place in the list of a sorted token
};

// Bitonic, a token a lane, descending.
__device__ inline uint64_t SortInWarp(uint64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int length = 2; length <= kWarpSize; length *= 2) {
#pragma unroll
    for (int step = length / 2; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(~0u, token, step);
      const bool takes_larger = ((lane & length) == 0) == ((lane & step) == 0);
      if ((other > token) == takes_larger) token = other;
    }
  }
  return token;
}

// The rank of every token, by the first `threads` of a block, which are the first whole warps with
// a token a thread: a warp sorts its own, and each thread finds how many of every warp's are
// larger. All tokens differ. (Comparing each token with all took three times as long: there are
// half as many lanes for integers.)
template <typename Visit>
__device__ void RankTop(const ListedTokens& from, int threads, ScoreMemory& memory, Visit visit) {
  constexpr int kAtOnce = 4;  // lists that a thread looks into
  const int thread = static_cast<int>(threadIdx.x);
  const uint64_t token = thread < from.size ? from.tokens[thread] : 0;
  memory.of_warps[thread] = SortInWarp(token);
  SyncThreads<kRankingBarrier>(threads);
  int rank = 0;
#pragma unroll 1
  for (int first = 0; first < threads; first += kAtOnce * kWarpSize) {
    int larger[kAtOnce] = {};
#pragma unroll
    for (int step = kWarpSize / 2; step >= 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int list = first + i * kWarpSize;
        const int place = list + larger[i] + (step > 0 ? step - 1 : 0);
        if (list < threads && memory.of_warps[place] > token) larger[i] += step > 0 ? step : 1;
      }
      if (step == 0) break;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) rank += larger[i];
  }
  if (thread < from.size) visit(rank, token, thread);
}

// Bitonic, a token a thread, descending. `first` are the first threads of a block, ThreadsToSort of
// the size; those past the list have 0, which goes to its end.
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

// The kept part of the sorted top: the tokens of the places from `begin` to before `end`.
struct KeptTop {
  float x;  // this thread's token
  int32_t id;
  float max;  // of the row
  int begin;
  int end;
  int most_end;   // `end` for certain, unless the mass of the whole row leaves it in doubt
  bool is_known;  // else the list says too little

  __device__ bool IsCertain() const { return is_known && end == most_end; }
  __device__ bool MayBeKept(int place) const { return place >= begin && place < most_end; }
  __device__ bool Keeps(int place) const { return place >= begin && place < end; }
};

// Selects from sorted tokens, which are all that PlanOfTop lists. whole: null when no rule reads
// the whole row. typical: what that rule keeps, followed by top-k, unless it is NoTypical.
template <class TeamOfRow, class Typical = NoTypical>
__device__ KeptTop SelectFromTop(const TeamOfRow& team, const ListedTokens& sorted,
                                 const RowPrologue& start, const WholeMass* whole,
                                 const Typical& typical = {}) {
  constexpr bool kIsTypical = !std::is_same_v<Typical, NoTypical>;
  using semantics::Filter;
  const SelectParams& params = start.params;
  const semantics::RuleSet rules = semantics::RulesOf(params);
  const int size = sorted.size;
  const int place = team.thread();
  KeptTop kept;
  kept.x = place < size ? ValueOf(sorted.tokens[place]) : -INFINITY;
  kept.id = place < size ? IdOf(sorted.tokens[place]) : -1;
  kept.max = ValueOf(sorted.tokens[0]);
  kept.begin = 0;
  kept.end = size;
  kept.is_known = true;
  if (Has(rules, Filter::kGreedy)) {
    kept.end = kept.most_end = 1;
    return kept;
  }
  bool is_whole = whole != nullptr && !whole->is_listed;
  const Profile& profile = params.profile;
  const bool with_ties = profile.ties == Ties::kAll;
  const float scale = start.scales.filter;
  uint64_t weight = semantics::Weight(kept.x, kept.max, scale);

  // Tokens before a place for which the predicate holds.
  auto count_before = [&](int limit, bool predicate) {
    return team.CountOfBlock(place < limit && predicate);
  };
  int first = 0;  // tokens before it are dropped, and have no weight from here on
  if constexpr (kIsTypical) {
    const TypicalEnds ends = typical.EndsOf(team, size, kept.x, kept.max, scale, weight);
    first = ends.begin;
    kept.begin = first;
    kept.end = ends.end;
    const bool is_the_end = kept.end < ends.known || (typical.has_all && ends.known == size);
    kept.is_known =
        ends.is_known && first < kept.end && (is_the_end || first + params.top_k <= kept.end);
    if (place < first) weight = 0;
  }
  auto weight_before = [&](int limit) { return place < limit ? weight : 0; };
  auto end_of_min_p = [&] {
    const uint64_t least = semantics::Fixed40(params.min_p);
    return first + max(1, count_before(size, weight >= least));
  };
  auto end_with_ties = [&](int end, int limit) {
    const float last = ValueOf(sorted.tokens[end - 1]);
    return count_before(limit, kept.x >= last);
  };

  if (Has(rules, Filter::kMinP)) {
    kept.end = end_of_min_p();
    if (is_whole) kept.is_known = kept.end < size;
    is_whole = false;  // the other rules read the kept set, which is listed
  }
  const int before_top_k = kept.end;
  if (Has(rules, Filter::kTopK) && params.top_k < kept.end - first) {
    const int end = first + params.top_k;
    kept.end = with_ties ? end_with_ties(end, kept.end) : end;
  }
  kept.most_end = kept.end;
  if (Has(rules, Filter::kTopP)) {
    const bool joint = profile.top_k_top_p == TopKTopP::kJoint;
    const int measured = joint ? before_top_k : kept.end;
    const auto [mass_above, listed] = team.SumsOfBlock(weight_before(measured));
    auto end_of = [&](uint64_t total) {
      const uint64_t target = semantics::TargetMass(params.top_p, total);
      const bool keeps = semantics::TopPKeeps(mass_above, target, profile.top_p_boundary);
      const int end = max(first + 1, count_before(measured, keeps));
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
  if (Has(rules, Filter::kMinPLast)) {
    const int end = end_of_min_p();
    if (is_whole && !Has(rules, Filter::kTopP)) kept.is_known = end < size;
    kept.end = min(kept.end, end);
    kept.most_end = min(kept.most_end, end);
  }
  if (Has(rules, Filter::kXtc) && semantics::XtcCoinFalls(start.key, params.xtc_probability)) {
    kept.is_known &= kept.end == kept.most_end;
    const uint64_t mass = team.SumOfBlock(weight_before(kept.end));
    const semantics::uint128_t least = semantics::XtcLeast(params.xtc_threshold, mass);
    const bool is_left = !kIsTypical || place >= first;
    const int above = count_before(kept.end, is_left && semantics::XtcCounts(weight, least));
    if (above >= 2) kept.begin = first + above - 1;
  }
  return kept;
}

template <class TeamOfRow>
__device__ Cut CutOfTop(const TeamOfRow& team, const ListedTokens& sorted, const KeptTop& kept) {
  const float first = ValueOf(sorted.tokens[kept.begin]);
  const float last = ValueOf(sorted.tokens[kept.end - 1]);
  // After the list there is -inf, which is not above anything.
  const int above_first = team.CountOfBlock(kept.x > first);
  const int above_last = team.CountOfBlock(kept.x > last);
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

// The first and the last kept token, for readers of ids.
__device__ inline CutIds IdsOfTop(const ListedTokens& sorted, const KeptTop& kept, const Cut& cut) {
  const uint64_t last = sorted.tokens[kept.end - 1];
  const uint64_t begin = sorted.tokens[kept.begin];
  return {cut.upper, ValueOf(last), kept.begin == 0 ? 0 : IdOf(begin), IdOf(last)};
}

// Sorted tokens, and for each the score that a warp outside the sorting ones gave it.
struct ScoredTop {
  ListedTokens sorted;
  bool has_scores;
};

// The score of the token at a thread's place. score: as SortAndScore has it.
template <typename Score>
__device__ uint32_t ScoreOfThread(const ScoredTop& scored, const ScoreMemory& scores, int thread,
                                  float max, Score score) {
  return scored.has_scores ? scores.of_listed[scores.listed[thread]]
                           : score(scored.sorted.tokens[thread], max);
}

// Sorts a list of at most as many tokens as the block has threads, which are 512 or more. Threads
// past ThreadsToSort of the size return with no further part in the row. score(token, the largest)
// may be called by other threads than those that sort, at the same time.
template <typename Score>
__device__ ScoredTop SortAndScore(const Team& block, const ListedTokens& from, ScoreMemory& scores,
                                  bool needs_scores, Score score) {
  const ListedTokens sorted = from.Moved(from.size);
  const int size = from.size;
  const int sorting = ThreadsToSort(size);
  if (size > kMostRanked) {
    if (block.thread() < sorting) SortTop(block.FirstThreads(sorting), from);
    return {sorted, false};
  }
  auto whole_warps = [](int threads) { return (threads + kWarpSize - 1) / kWarpSize * kWarpSize; };
  const int ranking = whole_warps(size);
  const int scoring = needs_scores ? ranking : 0;
  const int all = max(ranking + scoring, sorting);
  if (block.thread() >= all) return {sorted, needs_scores};
  const int scorer = block.thread() - ranking;
  if (scorer < 0) {
    RankTop(from, ranking, scores, [&](int rank, uint64_t token, int place) {
      sorted.tokens[rank] = token;
      scores.listed[rank] = place;
    });
  } else if (scorer < scoring) {
    uint32_t largest = 0;
#pragma unroll 1
    for (int place = block.lane(); place < size; place += kWarpSize) {
      largest = max(largest, static_cast<uint32_t>(from.tokens[place] >> 32));
    }
    largest = __reduce_max_sync(~0u, largest);
    if (scorer < size) {
      scores.of_listed[scorer] = score(from.tokens[scorer], semantics::ValueOfKey(largest));
    }
  }
  SyncThreads<kSortingBarrier>(all);
  return {sorted, needs_scores};
}

// The result of the team's first block for a row that was decided by its top.
struct TopSelection {
  Cut cut;
  CutIds ids;
  KeptTop kept;
};

// By the first block of the team; its first threads have what they keep, which need not be certain.
// whole: null when no rule looks at the whole row.
__device__ inline TopSelection SelectSorted(const Team& team, const ListedTokens& from,
                                            ScoreMemory& scores, const RowPrologue& start,
                                            const ListedTop* whole, int vocab) {
  TopSelection selection = {};
  const ScoredTop top =
      SortAndScore(team.Block(), from, scores, false, [](uint64_t, float) { return 0u; });
  const FirstThreads first = team.FirstThreads(ThreadsToSort(from.size));
  if (first.thread() >= first.threads()) return selection;
  WholeMass mass;
  if (whole != nullptr) mass = WholeMassOf(team, *whole, ValueOf(top.sorted.tokens[0]), vocab);
  selection.kept = SelectFromTop(first, top.sorted, start, whole == nullptr ? nullptr : &mass);
  selection.cut = CutOfTop(first, top.sorted, selection.kept);
  selection.ids = IdsOfTop(top.sorted, selection.kept, selection.cut);
  return selection;
}

}  // namespace sluice::cuda
