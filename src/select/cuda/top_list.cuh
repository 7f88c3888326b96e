// The top of a row in one read: guess a threshold from a sample, list what reaches it, certify that
// the list holds what the rules can keep.
//
// For top-k the guess is the value at a rank of the sample where, by the hypergeometric law, fewer
// than k tokens of the row lie above it in one row of a million; a sample of everything needs no
// guess. The certificate is a count: at least k listed tokens reach the largest threshold of the
// team, or the thresholds left nothing out. A block that has a row for itself and lists more than
// it has room for has k of them, and lists what reaches the k-th.
//
// For top-p and min-p it is a bet that the planned number of tokens is enough. The read adds up the
// mass of the row, so that top-p can be certified (sorted_rules.cuh).
#pragma once

#include "cuda/weight_histogram_pass.cuh"
#include "semantics/rules.h"

namespace sluice::cuda {

// The largest k that a list rarely overflows: a sixteenth of the row sampled, as from 512 rows on,
// lists 2680 to 2800 tokens, give or take 200.
inline constexpr int kMostTopK = 2048;
static_assert(kMostTopK <= kListCapacity, "ListAgain ranks among that many");

// Where top-p or min-p decides: a nucleus is seldom larger, and more take longer.
inline constexpr int kListedNucleus = 224;

struct TopPlan {
  int needed;     // tokens in the list; 0: a list does not decide the parameters
  bool is_whole;  // rules look at the whole row, and the tokens are a bet
};

// The most tokens of a sample that are ranked by the largest of a group of threads.
inline constexpr int kMostByGroups = kGroups * 3 / 8;

// The share of vectors with `elements` tokens each that hold one or more of a share of all tokens,
// by chance: a vector is ranked by its largest token.
__device__ inline float ShareOfVectors(float share_of_tokens, int elements) {
  float none = fmaxf(1.0f - share_of_tokens, 0.0f);
#pragma unroll
  for (int of = 1; of < elements; of *= 2) none *= none;
  return 1.0f - none;
}

// Whether vectors show where the first k are: of more of them a rank is left to chance.
__device__ inline bool DoVectorsRank(int k, int vocab, int elements) {
  return ShareOfVectors(__fdividef(static_cast<float>(k), static_cast<float>(vocab)), elements) <
         0.55f;
}

// The rules that the top of a row may decide (sorted_rules.cuh).
inline constexpr semantics::RuleSet kRulesOfTop = semantics::Rules(
    semantics::Filter::kGreedy, semantics::Filter::kMinP, semantics::Filter::kTopK,
    semantics::Filter::kTopP, semantics::Filter::kMinPLast, semantics::Filter::kXtc);

// elements: of a vector.
__device__ inline TopPlan PlanOfTop(const SelectParams& params, int vocab, int elements) {
  using semantics::Filter;
  const semantics::RuleSet rules = semantics::RulesOf(params);
  if (Has(rules, Filter::kGreedy)) return {1, false};
  if (!IsWithin(rules, kRulesOfTop)) return {0, false};
  if (Has(rules, Filter::kTopK) && !IsJoint(rules, params.profile)) {
    const bool is_listed =
        params.top_k <= kMostByGroups ||
        (params.top_k <= kMostTopK &&
         (vocab <= kListCapacity || DoVectorsRank(params.top_k, vocab, elements)));
    return {is_listed ? params.top_k : 0, false};
  }
  const bool is_bounded =
      Has(rules, Filter::kTopP) || Has(rules, Filter::kMinP) || Has(rules, Filter::kMinPLast);
  return {is_bounded ? kListedNucleus : 0, true};
}

inline constexpr int kProbesAtOnce = 3;

// The largest key from `low` to `high` that `rank` of some keys reach, or one that no more than
// `enough` of them reach; `rank` reach `low`. Three probes at a time, because most of a count is a
// wait for its sum: count(probes, their counts, number of the three).
template <typename Count>
__device__ uint32_t SearchKeys(uint32_t low, uint32_t high, int rank, int enough, Count count) {
#pragma unroll 1
  for (int n = 0; low < high; ++n) {
    const uint32_t middle = high - (high - low) / 2;
    const uint32_t probes[kProbesAtOnce] = {middle - (middle - low) / 2, middle,
                                            high - (high - middle) / 2};
    int counts[kProbesAtOnce];
    count(probes, counts, n);
    int of_low = enough + 1;
#pragma unroll
    for (int i = 0; i < kProbesAtOnce; ++i) {
      if (counts[i] >= rank) {
        low = probes[i];
        of_low = counts[i];
      } else {
        high = min(high, probes[i] - 1);
      }
    }
    if (of_low <= enough) break;
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
  return SearchKeys(warp.least, warp.most, rank, enough,
                    [&](const auto& probes, auto& counts, int) {
#pragma unroll
                      for (int i = 0; i < kProbesAtOnce; ++i) counts[i] = warp.CountFrom(probes[i]);
                    });
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
  return SearchKeys(list.least, list.most, rank, enough,
                    [&](const auto& probes, auto& counts, int n) {
                      uint32_t* of_block = list.counts + n * kProbesAtOnce;
#pragma unroll
                      for (int i = 0; i < kProbesAtOnce; ++i) {
                        const int of_warp = warp.CountFrom(probes[i]);
                        if (team.lane() == i) atomicAdd(&of_block[i], of_warp);
                      }
                      team.SyncBlock();
#pragma unroll
                      for (int i = 0; i < kProbesAtOnce; ++i) {
                        counts[i] = static_cast<int>(of_block[i]);
                      }
                    });
}

struct Threshold {
  float value;
  bool is_of_team;  // equal in all blocks: groups of threads are fine enough for the rank
};

template <DType kDType, bool kPatched>
__device__ Threshold GuessThreshold(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                                    const FirstVectors& loaded, const RowPrologue& start,
                                    TokenList& list, const TopPlan& plan) {
  const int needed = plan.needed;
  const float share = slice.SampledShare();
  auto rank_of = [&](float expected) {  // such that `expected` of the needed tokens are above it
    return share < 1.0f ? static_cast<int>(expected + 3.5f * SqrtApprox(expected) + 4.0f) : needed;
  };
  const int rank =
      plan.is_whole ? min(max(static_cast<int>(static_cast<float>(needed) * share), 7), kGroups / 2)
                    : rank_of(static_cast<float>(needed) * share);
  // By one warp: others would take its turns. Among groups the last ranks list more than they
  // need to, because a group has more than one token there: 1.25 times as many at this one.
  if (rank <= (plan.is_whole ? kGroups / 2 : kMostByGroups)) {
    if (team.thread() < kWarpSize) {
      const OfGroups<uint32_t> largest(team, start.largest);
      const uint32_t key = KeyOfRankInWarp(largest.value, rank, rank + rank / 8 + 2);
      if (team.lane() == 0) list.guess = key;
    }
    team.SyncBlock();
    return {semantics::ValueOfKey(list.guess), true};
  }
  constexpr int kElements = Vector<kDType>::kElements;
  if (slice.vocab() <= kListCapacity && !DoVectorsRank(needed, slice.vocab(), kElements)) {
    return {semantics::kLowestValue, true};
  }
  uint32_t keys[kVectorsAtOnce];
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce; ++i) {
    keys[i] = semantics::OrderKey(Vector<kDType>(loaded[i]).Largest());
  }
  const float expected = static_cast<float>(needed) * share / static_cast<float>(team.blocks());
  // Vectors differ by how many tokens they hide, the more the more of them hold some.
  const float hidden = static_cast<float>(needed * kElements) / static_cast<float>(slice.vocab());
  const float tokens = expected + 3.5f * SqrtApprox(expected * (1.0f + hidden)) + 4.0f;
  const float sampled =
      share * static_cast<float>(slice.vocab()) / static_cast<float>(team.blocks());
  const int of_block = 1 + static_cast<int>(sampled / static_cast<float>(kElements) *
                                            ShareOfVectors(tokens / sampled, kElements));
  const uint32_t key = KeyOfRank(team, list, keys, of_block, of_block + of_block / 32 + 2);
  return {semantics::ValueOfKey(key), team.blocks() == 1};
}

// How many listed tokens reach the threshold of all blocks. By the first block.
__device__ inline int CountFrom(const Team& team, const TokenList& list, int size) {
  int count = 0;
#pragma unroll 1
  for (int first = 0; first < size; first += team.threads()) {
    const int i = first + team.thread();
    count += team.CountOfBlock(i < size &&
                               static_cast<uint32_t>(list.tokens[i] >> 32) >= list.threshold);
  }
  return count;
}

// The state of a row in the first block after ListTop.
struct ListedTop {
  int size = -1;  // of the list, in no order yet; negative: it does not hold what is needed, or a
                  // logit is NaN or +inf; 0: a row without support
  bool has_all = false;              // of the support
  bool is_of_one_threshold = false;  // of all blocks
  ReadMass read = {};                // of the whole row, if the rules look at it
  WeightUnit unit = {};
};

// The sums of a read over the tokens that it does not list: none. (typical_guess.cuh)
struct NoMoments {
  static constexpr bool kAreAddedUp = false;
};

template <bool kWeighs, DType kDType, bool kPatched, class Moments>
__device__ void NoteTop(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                        FirstVectors& loaded, float threshold, const WeightUnit& unit,
                        WeightHistogramMemory& memory, Moments& moments) {
  using Tokens = Eight<kDType>;
  float mass = 0.0f;
  if constexpr (kWeighs || Moments::kAreAddedUp) slice.UnpatchFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    if constexpr (kWeighs) mass += unit.WeightOf(tokens);
    if constexpr (Moments::kAreAddedUp) moments.See(tokens);
    bool all_below = true;  // false for a NaN
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) all_below &= tokens.x[e] < threshold;
    if (!all_below) Note(memory.list, tokens);
  });
  float replaced = 0.0f;
  slice.ForEachPatch(team, [&](float before, float x, int id) {
    if constexpr (kWeighs) {
      const float weight_before = unit.WeightOf(before);
      mass += unit.WeightOf(x);
      mass -= weight_before;
      replaced += weight_before;
    }
    if constexpr (Moments::kAreAddedUp) moments.Replace(before, x);
    if (!(x < threshold)) ListToken(*team.Of(0, &memory.list), x, id);
  });
  if constexpr (Moments::kAreAddedUp) moments.ShareOfWarps(team);
  if constexpr (kWeighs) ShareOfWarp(team, mass, memory.mass);
  if constexpr (kWeighs && kPatched) ShareOfWarp(team, replaced, memory.replaced);
}

// Lists again what a block alone noted, after a list that is not spoilt but too long. When `needed`
// of the tokens with room reach a key, no fewer of the row do. Not inline, and the slice is a copy:
// it is seldom needed and does not burden what is the rule.
template <DType kDType, bool kPatched>
__device__ __noinline__ void ListAgain(const Team block, const VectorSlice<kDType, kPatched> slice,
                                       TokenList& list, int needed) {
  constexpr int kKeys = (kListCapacity + 511) / 512;  // blocks have 512 threads or more
  uint32_t keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = block.thread() + i * block.threads();
    keys[i] = place < kListCapacity ? static_cast<uint32_t>(list.tokens[place] >> 32) : 0;
  }
  block.SyncBlock();  // all have seen the count
  if (block.thread() == 0) {
    list.least = ~0u;
    list.most = list.count = list.has_zero = 0;
  }
  block.SyncBlock();
  const uint32_t key = KeyOfRank(block, list, keys, needed, needed + needed / 16 + 4);
  const float threshold = semantics::ValueOfKey(key);
  slice.ForEachPatch(block, [&](float, float x, int id) {
    if (!(x < threshold)) ListToken(list, x, id);
  });
  ListNoted(block, slice, list, key, [&](float x, int) { return !(x < threshold); });
  block.SyncBlock();
}

// Only the first block gets the answer. The list was cleared before StartRow.
// moments: of a plan that is not of the whole.
template <DType kDType, bool kPatched, class Moments>
__device__ ListedTop ListTop(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                             FirstVectors& loaded, const RowPrologue& start,
                             WeightHistogramMemory& memory, const TopPlan& plan, Moments& moments) {
  TokenList& list = memory.list;
  // With a NaN in the sample: some threshold; what is not below it spoils the list.
  const Threshold guess = GuessThreshold(team, slice, loaded, start, list, plan);
  const float threshold = fmaxf(guess.value, semantics::kLowestValue);
  ListedTop top;
  if (plan.is_whole) {
    const float scale = start.scales.filter;
    top.unit = {scale, -LargestOfFirst(team, start) * scale};
    NoMoments none;
    NoteTop<true>(team, slice, loaded, threshold, top.unit, memory, none);
  } else {
    if constexpr (Moments::kAreAddedUp) moments.Begin(team, start, threshold);
    NoteTop<false>(team, slice, loaded, threshold, top.unit, memory, moments);
  }
  team.SyncBlock();
  if constexpr (Moments::kAreAddedUp) moments.ShareOfBlocks(team);
  if (plan.is_whole) {
    ShareOfBlock(team, memory.mass, memory.mass_of_blocks);
    if constexpr (kPatched) ShareOfBlock(team, memory.replaced, memory.replaced_of_blocks);
  }
  ListNoted(team, slice, list, semantics::OrderKey(threshold),
            [&](float x, int) { return !(x < threshold); });
  team.Sync();
  if (team.blocks() == 1 && !plan.is_whole && list.is_spoilt == 0 && list.count > kListCapacity) {
    ListAgain(team, slice, list, plan.needed);
  }
  if (team.rank() != 0 || !list.IsComplete()) return top;
  const int size = static_cast<int>(list.count);
  top.has_all = list.threshold == semantics::OrderKey(semantics::kLowestValue);
  if (plan.is_whole) {
    top.read = MassOfTeam(team, slice, memory);
  } else if (!top.has_all) {
    const int reached = guess.is_of_team ? size : CountFrom(team, list, size);
    if (reached < plan.needed) return top;
  }
  top.size = size;
  top.is_of_one_threshold = guess.is_of_team;
  return top;
}

}  // namespace sluice::cuda
