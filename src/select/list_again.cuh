// The list of a row's top once more, where the first one holds too much: thousands of ties at the
// boundary, or a row whose largest tokens all lie in one stretch. What is known of the row (the
// tokens that had room, or a sample from all over it) guesses a value and, among its ties, an id;
// what comes no later in the order is listed, and its count certifies it, as ever.
//
// Tokens stay in shared memory and are looked at again for every question: a few in registers would
// be spilled, and beside so much shared memory local memory has no room in L1.
#pragma once

#include "select/binned_top.cuh"
#include "select/spread_sample.cuh"

namespace sluice::cuda {

// The largest key from `floor` on that `rank` of the tokens reach, or one that no more than
// `enough` of them reach; 0: fewer reach the floor. A token that is 0 is none. By all threads of a
// block.
__device__ inline uint64_t TokenOfRank(const Team& block, const uint64_t* tokens, int size,
                                       uint64_t floor, int rank, int enough) {
  constexpr int kBits = 20;  // of a count
  constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  uint64_t most = 0;
#pragma unroll 1
  for (int i = block.thread(); i < size; i += block.threads()) most = max(most, tokens[i]);
  most = block.MaxOfBlock(most);
  // How many reach each of three, in one sum, because most of it is a wait.
  auto counts_from = [&](uint64_t first, uint64_t second, uint64_t third) {
    uint64_t counts = 0;
#pragma unroll 1
    for (int i = block.thread(); i < size; i += block.threads()) {
      const uint64_t token = tokens[i];
      counts += (token >= first ? uint64_t{1} : 0) + (token >= second ? uint64_t{1} << kBits : 0) +
                (token >= third ? uint64_t{1} << 2 * kBits : 0);
    }
    return block.SumOfBlock(counts);
  };
  const uint64_t of_most = most >> 32 << 32;  // its value, all ids
  const uint64_t counts = counts_from(floor, of_most, ~uint64_t{0});
  if (static_cast<int>(counts & kMask) < rank) return 0;
  uint64_t low = floor, high = most;
  if (static_cast<int>(counts >> kBits & kMask) >= rank) low = max(floor, of_most);
#pragma unroll 1
  while (low < high) {
    const uint64_t middle = high - (high - low) / 2;
    const uint64_t probes[] = {middle - (middle - low) / 2, middle, high - (high - middle) / 2};
    const uint64_t reached = counts_from(probes[0], probes[1], probes[2]);
    int of_low = enough + 1;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int count = static_cast<int>(reached >> i * kBits & kMask);
      if (count >= rank) {
        low = probes[i];
        of_low = count;
      } else {
        high = min(high, probes[i] - 1);
      }
    }
    if (of_low <= enough) break;
  }
  return low;
}

// The last token that is listed, in the order.
struct LastListed {
  float value;
  uint32_t id;

  // True for a NaN.
  __device__ bool Lists(float x, int other_id) const {
    return !(x < value) && (static_cast<uint32_t>(other_id) <= id || x != value);
  }
};

// Some more than `rank`, so that a search ends early.
__device__ inline int EnoughFor(int rank) { return rank + rank / 8 + 2; }

// Of a sample from all over the row, which takes the place of the list. By the first block.
template <DType kDType, bool kPatched>
__device__ uint64_t LastOfSample(const Team& block, const VectorSlice<kDType, kPatched>& slice,
                                 TokenList& list, int needed) {
  const float share = SampleRow(block, slice, list.tokens);
  block.SyncBlock();
  const float expected = static_cast<float>(needed) * share;
  // So many that fewer than are needed lie above in one row of thousands, but no more than lets the
  // list overflow as seldom.
  const float most = share * SqrtApprox(static_cast<float>(needed) * kListCapacity);
  const int rank =
      share < 1.0f
          ? max(1, static_cast<int>(fminf(expected + 3.5f * SqrtApprox(expected) + 4.0f, most)))
          : needed;
  const uint64_t floor = static_cast<uint64_t>(semantics::OrderKey(semantics::kLowestValue)) << 32;
  return TokenOfRank(block, list.tokens, kSampled, floor, rank, EnoughFor(rank));
}

// Of those that had room in a list that is too long: what `needed` of them reach, no fewer of the
// row do. What is below the largest threshold of the team, not all blocks have noted. By the first
// block.
__device__ inline uint64_t LastOfListed(const Team& block, TokenList& list, int needed) {
  return TokenOfRank(block, list.tokens, kListCapacity, static_cast<uint64_t>(list.threshold) << 32,
                     needed, EnoughFor(needed));
}

// Whether that is for a row whose list did not decide it: its list is as ListTop left it.
__device__ inline bool IsListedAgain(const TopPlan& plan, const SelectParams& params, int vocab) {
  return plan.needed > 0 && !plan.is_whole &&
         (semantics::IsGreedy(params) || (BinsDecide(params) && params.top_k < vocab));
}

// Behind a Sync of the team behind ListTop. The first block gets the number of tokens in its list,
// which is negative where it does not hold what is needed; the others get some number.
template <DType kDType, bool kPatched>
__device__ int ListAgain(const Team& team, VectorSlice<kDType, kPatched>& slice,
                         FirstReadMemory& memory, int needed) {
  using Tokens = Eight<kDType>;
  constexpr int kMostTurns = 3;
  TokenList& list = memory.list;
  TokenList& first = *team.Of(0, &list);
  const MarkRoom room = RoomBesideList(memory);
  slice.MarkPatches(team, room.data, room.bytes);
  bool has_all = false;
#pragma unroll 1
  for (int turn = 0; turn < kMostTurns; ++turn) {
    // Else the places of all that reaches the list's threshold are known, and what has room in it
    // is sample enough.
    const bool reads = first.is_spoilt != 0 || first.count <= kListCapacity ||
                       first.count * static_cast<uint32_t>(needed) >
                           static_cast<uint32_t>(kListCapacity * kListCapacity / 2);
    team.Sync();
    if (team.rank() == 0) {
      const Team block = team.Block();
      const uint64_t last =
          reads ? LastOfSample(block, slice, list, needed) : LastOfListed(block, list, needed);
      block.SyncBlock();
      if (block.thread() == 0) {
        list.guess = static_cast<uint32_t>(last >> 32);
        list.place = static_cast<uint32_t>(IdOf(last));
      }
    }
    if (team.thread() == 0) {
      list.count = list.threshold = list.has_zero = list.is_spoilt = 0;
      if (reads) list.noted_count = 0;
    }
    team.Sync();
    const uint32_t lowest = semantics::OrderKey(semantics::kLowestValue);
    const bool has_key = first.guess > 0;
    const LastListed last{semantics::ValueOfKey(has_key ? first.guess : lowest),
                          has_key ? first.place : ~0u};
    has_all = reads && !has_key;
    if (reads) {
      const float beyond = semantics::ValueOfKey(semantics::OrderKey(last.value) + 1);
      FirstVectors loaded;
      slice.LoadFirst(loaded);
      slice.Stream(loaded, [&](const Tokens& tokens) {
        const float threshold = static_cast<uint32_t>(tokens.first) > last.id ? beyond : last.value;
        bool all_below = true;  // false for a NaN
#pragma unroll
        for (int e = 0; e < Tokens::kTokens; ++e) all_below &= tokens.x[e] < threshold;
        if (!all_below) Note(list, tokens);
      });
    }
    auto is_wanted = [&](float x, int id) { return last.Lists(x, id); };
    slice.ForEachPatch(team, [&](float, float x, int id) {
      if (is_wanted(x, id)) ListToken(first, x, id);
    });
    team.SyncBlock();
    ListNoted(team, slice, list, semantics::OrderKey(last.value), is_wanted);
    team.Sync();
    if (first.is_spoilt != 0) return -1;
    if (first.count <= kListCapacity) break;
  }
  const int size = static_cast<int>(first.count);
  return size <= kListCapacity && (has_all || size >= needed) ? size : -1;
}

// What is kept of a list that is made again; its last token is 0 where that is not known. By the
// first block.
__device__ __forceinline__ BinnedTop SelectListedAgain(const Team& block, const ListedTokens& from,
                                                       const RowStart& start) {
  const SelectParams& params = start.params;
  if (semantics::IsGreedy(params)) {
    const uint64_t first = TokenOfRank(block, from.tokens, from.size, 1, 1, 0);
    return {first, ValueOf(first)};
  }
  BinnedTop kept = SelectByBins(block, from, start);
  if (kept.last != 0 || params.min_p > 0) return kept;
  // More are equal than a bin is looked into for: by bisection, exactly.
  const int rank = min(params.top_k, from.size);
  kept.last = TokenOfRank(block, from.tokens, from.size, 1, rank, 0);
  if (params.top_p == 1) return kept;
  auto mass_from = [&](uint64_t key) {
    uint64_t mass = 0;
#pragma unroll 1
    for (int i = block.thread(); i < from.size; i += block.threads()) {
      if (from.tokens[i] < key) continue;
      mass += semantics::Weight(ValueOf(from.tokens[i]), kept.max, start.scales.filter);
    }
    return block.SumOfBlock(mass);
  };
  const uint64_t target =
      ::max(uint64_t{1},
            semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, mass_from(kept.last)),
                                       params.profile.top_p_boundary));
  uint64_t high = static_cast<uint64_t>(semantics::OrderKey(kept.max)) << 32 | ~0u;
#pragma unroll 1
  while (kept.last < high) {
    const uint64_t middle = high - (high - kept.last) / 2;
    if (mass_from(middle) >= target) {
      kept.last = middle;
    } else {
      high = middle - 1;
    }
  }
  return kept;
}

}  // namespace sluice::cuda
