// The list of a row's top from a second read, where the first one listed too much or too little:
// thousands of ties at the boundary, or a row whose largest tokens all lie in one stretch. A sample
// from all over the row guesses a value and, among its ties, an id. What comes no later in the
// order is listed; that it is enough is certified by its count, as ever.
#pragma once

#include "select/spread_sample.cuh"
#include "select/top_list.cuh"

namespace sluice::cuda {

// The last token that is listed, in the order.
struct LastListed {
  uint32_t key;  // order key of the value; 0: no list will do
  int32_t id;

  // True for a NaN.
  __device__ bool Lists(float x, int other_id) const {
    const float value = semantics::ValueOfKey(key);
    return !(x < value) && (other_id <= id || x != value);
  }
};

// How many sampled tokens have larger keys, and how many have this one or larger.
struct Reaching {
  int above;
  int from;
};
template <int kKeys>
__device__ Reaching ReachingOf(const Team& block, const uint32_t (&keys)[kKeys], uint32_t key) {
  uint64_t counts = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    counts += (keys[i] > key ? uint64_t{1} << 32 : 0) + (keys[i] >= key ? 1 : 0);
  }
  counts = block.SumOfBlock(counts);
  return {static_cast<int>(counts >> 32), static_cast<int>(counts & ~0u)};
}

// By the first block, whose list the first read has filled; clears it.
template <DType kDType, bool kPatched>
__device__ LastListed GuessLast(const Team& block, const VectorSlice<kDType, kPatched>& slice,
                                TokenList& list, int needed, Ties ties) {
  constexpr int kKeys = SpreadSample<kDType, kPatched>::kTokens;
  const uint32_t guessed = list.is_hopeless != 0 ? list.guess : list.threshold;
  const SpreadSample<kDType, kPatched> sample(block, slice);
  block.SyncBlock();
  Clear(block, list);
  const float share = sample.share();
  const float expected = static_cast<float>(needed) * share;
  // So many that fewer than are needed lie above in one row of thousands, but no more than lets the
  // list overflow as seldom.
  const float most = share * SqrtApprox(static_cast<float>(needed) * kListCapacity);
  const int rank =
      share < 1.0f
          ? max(1, static_cast<int>(fminf(expected + 3.5f * SqrtApprox(expected) + 4.0f, most)))
          : needed;
  auto enough_for = [](int wanted) { return wanted + wanted / 8 + 2; };
  block.SyncBlock();
  // Of ties the first guess was right but for the ids.
  uint32_t key = guessed;
  Reaching reaching = ReachingOf(block, sample.keys(), key);
  if (reaching.above >= rank || reaching.from < rank) {
    key = KeyOfRank(block, list, sample.keys(), rank, enough_for(rank));
    reaching = ReachingOf(block, sample.keys(), key);
  }
  const uint32_t lowest = semantics::OrderKey(semantics::kLowestValue);
  if (key < lowest) return {lowest, INT32_MAX};
  if (reaching.from <= enough_for(rank)) return {key, INT32_MAX};
  if (ties == Ties::kAll) return {0, -1};
  const int wanted = rank - reaching.above;
  ClearCounts(block, list);
  block.SyncBlock();
  const uint32_t id =
      SearchInBlock(block, list, ~static_cast<uint32_t>(slice.vocab()), ~0u, wanted,
                    enough_for(wanted), [&](uint32_t from) {
                      int count = 0;
#pragma unroll
                      for (int i = 0; i < kKeys; ++i) {
                        const bool is_tie = sample.keys()[i] == key;
                        count += is_tie && ~static_cast<uint32_t>(sample.Id(i)) >= from ? 1 : 0;
                      }
                      return __reduce_add_sync(~0u, count);
                    });
  return {key, static_cast<int32_t>(~id)};
}

// Behind a Sync of the team behind ListTop. Only the first block gets the answer.
template <DType kDType, bool kPatched>
__device__ ListedTop ListAgain(const Team& team, VectorSlice<kDType, kPatched> slice,
                               FirstReadMemory& memory, const TopPlan& plan, Ties ties) {
  using Tokens = Eight<kDType>;
  TokenList& list = memory.list;
  ListedTop top;
  if (team.rank() == 0) {
    const LastListed guess = GuessLast(team.Block(), slice, list, plan.needed, ties);
    if (team.thread() == 0) {
      list.guess = guess.key;
      list.last_id = guess.id;
    }
  } else {
    Clear(team, list);
  }
  team.Sync();
  const TokenList& first = *team.Of(0, &list);
  const LastListed last{first.guess, first.last_id};
  if (last.key == 0) return top;
  const MarkRoom room = RoomBesideList(memory);
  slice.MarkPatches(team, room.data, room.bytes);
  const float value = semantics::ValueOfKey(last.key);
  const float beyond = semantics::ValueOfKey(last.key + 1);  // the next larger value
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    const float threshold = tokens.first > last.id ? beyond : value;
    bool all_below = true;  // false for a NaN
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) all_below &= tokens.x[e] < threshold;
    if (!all_below) Note(list, tokens);
  });
  auto is_wanted = [&](float x, int id) { return last.Lists(x, id); };
  slice.ForEachPatch(team, [&](float, float x, int id) {
    if (is_wanted(x, id)) ListToken(*team.Of(0, &list), x, id);
  });
  team.SyncBlock();
  ListNoted(team, slice, list, last.key, is_wanted);
  team.Sync();
  if (team.rank() != 0 || !list.IsComplete()) return top;
  const int size = static_cast<int>(list.count);
  top.has_all = last.key == semantics::OrderKey(semantics::kLowestValue) && last.id == INT32_MAX;
  if (top.has_all || size >= plan.needed) top.size = size;
  return top;
}

}  // namespace sluice::cuda
