// What a list must keep of itself to be sorted: those among the first k, or those that have the
// mass which top-p can need of the whole row.
#pragma once

#include "select/cuda/top_list.cuh"
#include "semantics/filters/top_p.h"

namespace sluice::cuda {

// Tokens in a block's shared memory, and room next to them for as many.
struct ListedTokens {
  uint64_t* tokens;
  uint64_t* room;
  int size;

  __device__ ListedTokens Moved(int size_there) const { return {room, tokens, size_there}; }
};

// Up to this many are sorted by warps alone; more are pruned before, if that is possible.
inline constexpr int kMostRanked = 8 * kWarpSize;
// Beyond this many, those of a nucleus are found first.
inline constexpr int kMostOfNucleus = 2 * kWarpSize;

// The mass of a whole row, as far as one read gives it.
struct WholeMass {
  uint64_t least;
  uint64_t most;
  bool is_listed;  // the list has the whole row, so its mass is known
};

// The mass of the row with a listed top.
__device__ inline WholeMass WholeMassOf(const Team& team, const ListedTop& top, float max,
                                        int vocab) {
  const float unit = top.unit.WeightOf(max);
  // A largest value far above the sample would be known too badly, and of huge values rounding may
  // leave no unit at all; false for a NaN.
  const double mass = top.read.mass;
  const bool is_known = unit > 0x1p-100f && unit < 0x1p64f && mass < 0x1p100 && top.read.IsKnown();
  if (!is_known) return {0, UINT64_MAX, top.has_all};
  // Weights are known to 1e-5, but for the unit in which they are integers, and a thread adds up
  // its eights in fp32.
  const double doubt = 1e-5 + 0x1p-40 * vocab +
                       0x1p-24 * (vocab / (8 * team.threads() * team.blocks()) + 16) +
                       top.read.doubt;
  const double total = mass * (0x1p40 / static_cast<double>(unit));  // a float overflows
  return {static_cast<uint64_t>(total * (1.0 - doubt)),
          static_cast<uint64_t>(total * (1.0 + doubt)), top.has_all};
}

// Those that top-p can keep of the whole row: from some bin of weight on they have the mass that it
// needs. Bins are a quarter of an octave below the largest token.
__device__ inline void PruneByMass(const Team& team, TokenList& list, const ListedTokens& from,
                                   const ListedTop& top, const RowPrologue& start, int vocab) {
  constexpr int kCoarse = 20;  // bits of a weight that are left out here
  const Team block = team.Block();
  const int thread = block.thread();
  if (thread < kMassBins) list.bin_mass[thread] = 0;
  if (thread == 0) list.most = list.pruned = 0;
  block.SyncBlock();
  uint32_t most = 0;
#pragma unroll 1
  for (int i = thread; i < from.size; i += block.threads()) {
    most = max(most, static_cast<uint32_t>(from.tokens[i] >> 32));
  }
  most = __reduce_max_sync(~0u, most);
  if (block.lane() == 0) atomicMax(&list.most, most);
  block.SyncBlock();
  const float max = semantics::ValueOfKey(list.most);
  const float scale = start.scales.filter;
  // Never falls as x falls.
  auto bin_of = [&](float x) {
    const float quarters = -4.0f * semantics::LogWeight(x, max, scale);
    return static_cast<int>(fminf(quarters, kMassBins - 1.0f));
  };
#pragma unroll 1
  for (int i = thread; i < from.size; i += block.threads()) {
    const float x = ValueOf(from.tokens[i]);
    const uint32_t weight = static_cast<uint32_t>(semantics::Weight(x, max, scale) >> kCoarse);
    atomicAdd(&list.bin_mass[bin_of(x)], weight);
  }
  block.SyncBlock();
  // The last bin that is kept, the first with which there is enough: by every warp for itself.
  const WholeMass whole = WholeMassOf(team, top, max, vocab);
  const uint64_t target = semantics::TargetMass(start.params.top_p, whole.most) >> kCoarse;
  const uint32_t first = list.bin_mass[2 * block.lane()];
  const uint32_t second = list.bin_mass[2 * block.lane() + 1];
  const uint32_t through = team.SumThrough(first + second);
  const int last_bin = __popc(__ballot_sync(~0u, through - second <= target)) +
                       __popc(__ballot_sync(~0u, through <= target));
#pragma unroll 1
  for (int i = thread; i < from.size; i += block.threads()) {
    const uint64_t token = from.tokens[i];
    if (bin_of(ValueOf(token)) <= last_bin) from.room[atomicAdd(&list.pruned, 1u)] = token;
  }
}

template <int kKeys>
__device__ void PruneInBlock(const Team& block, TokenList& list, const ListedTokens& from,
                             int needed, int most) {
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
      max(1u, KeyOfRank(block, list, keys, needed, min(needed + needed / 16 + 4, most)));
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (keys[i] < least) continue;
    from.room[atomicAdd(&list.pruned, 1u)] = mine[i];
  }
}

// Leaves those that can be kept by what needs the list: no more than the block has threads, unless
// more are needed or too many are equal.
__device__ inline ListedTokens PruneTop(const Team& team, TokenList& list, const ListedTop& top,
                                        const TopPlan& plan, const RowPrologue& start, int vocab) {
  const Team block = team.Block();
  const ListedTokens from{list.tokens, list.room, top.size};
  const int most = block.threads();  // a token a thread
  if (plan.is_whole) {
    const semantics::RuleSet rules = semantics::RulesOf(start.params);
    const bool by_mass = Has(rules, semantics::Filter::kTopP) &&
                         !Has(rules, semantics::Filter::kMinP) && !top.has_all;
    if (!by_mass || from.size <= kMostOfNucleus) return from;
    PruneByMass(team, list, from, top, start, vocab);
  } else if (from.size <= kMostRanked || plan.needed > most - 16) {
    return from;
  } else if (from.size <= most) {
    PruneInBlock<1>(block, list, from, plan.needed, most);
  } else if (from.size <= 3 * most) {
    PruneInBlock<3>(block, list, from, plan.needed, most);
  } else {
    PruneInBlock<(kListCapacity + 511) / 512>(block, list, from, plan.needed, most);
  }
  block.SyncBlock();
  return from.Moved(static_cast<int>(list.pruned));
}

}  // namespace sluice::cuda
