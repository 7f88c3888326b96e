// The tokens that top-k, top-p and min-p keep of a list that is too long for a token a thread:
// tokens and masses are counted in bins of value, and only the bin that holds a boundary is looked
// into token by token. Nothing is sorted. Counts and masses are exact, so the boundary is.
#pragma once

#include "cuda/cut_ids.cuh"
#include "cuda/row_prologue.cuh"
#include "select/cuda/prune_top.cuh"
#include "semantics/filters/min_p.h"
#include "semantics/filters/top_p.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

// In shared memory, in the room next to the list.
struct TopBins {
  static constexpr int kBins = 1024;
  static constexpr int kMostBinsAThread = 2;
  static constexpr int kMostInBin = 512;  // of a bin with a boundary: a token a thread
  static constexpr int kLowBits = 20;     // of a weight, which has 41

  // Where a boundary is, and what lies above its bin.
  struct Place {
    int32_t bin;
    uint32_t count;
    uint64_t mass;
    uint32_t in_bin;
  };

  uint32_t counts[kBins];
  uint32_t low[kBins];
  uint32_t high[kBins];
  uint64_t tokens[kMostInBin];
  uint64_t weights[kMostInBin];
  Place of_top_k;
  Place of_top_p;
  uint32_t largest;
  uint32_t least;
  uint64_t last;
  uint64_t mass;
};
static_assert(sizeof(TopBins) <= sizeof(TokenList::room));
static_assert(kListCapacity < (1 << 12), "a count and a mass share a word, and sums of low bits");
static_assert(TopBins::kBins == TopBins::kMostBinsAThread * 512 && TopBins::kBins % 1024 == 0,
              "blocks have 512 or 1024 threads");
static_assert(TopBins::kMostInBin <= 512);

// Tokens that do not come before `last`, in the order of their keys.
struct BinnedTop {
  uint64_t last;  // 0: not known, because too many tokens lie in a bin
  float max;
};

inline constexpr semantics::RuleSet kRulesOfBins =
    semantics::Rules(semantics::Filter::kMinP, semantics::Filter::kTopK, semantics::Filter::kTopP,
                     semantics::Filter::kMinPLast);

// For a list that holds all that can be kept. (A joint top-p is measured on more than top-k keeps.)
__device__ inline bool BinsDecide(const SelectParams& params) {
  const semantics::RuleSet rules = semantics::RulesOf(params);
  return IsWithin(rules, kRulesOfBins) && Has(rules, semantics::Filter::kTopK) &&
         params.profile.ties != Ties::kAll && !IsJoint(rules, params.profile);
}

// By all threads of a block.
__device__ inline BinnedTop SelectByBins(const Team& block, const ListedTokens& from,
                                         const RowPrologue& start) {
  constexpr uint64_t kMassMask = (uint64_t{1} << 52) - 1;
  TopBins& bins = *reinterpret_cast<TopBins*>(from.room);
  const SelectParams& params = start.params;
  const semantics::RuleSet rules = semantics::RulesOf(params);
  const bool has_top_p = Has(rules, semantics::Filter::kTopP);
  const bool has_min_p_first = Has(rules, semantics::Filter::kMinP);
  const uint64_t least_weight = semantics::Fixed40(params.min_p);
  const int thread = block.thread();
  auto for_each = [&](auto visit) {
#pragma unroll 1
    for (int i = thread; i < from.size; i += block.threads()) visit(from.tokens[i]);
  };

  for (int i = thread; i < TopBins::kBins; i += block.threads()) {
    bins.counts[i] = bins.low[i] = bins.high[i] = 0;
  }
  if (thread == 0) {
    bins.largest = bins.of_top_k.in_bin = bins.of_top_p.in_bin = 0;
    bins.of_top_p.bin = -1;
    bins.least = ~0u;
    bins.last = 0;
  }
  block.SyncBlock();
  const uint32_t masked = semantics::OrderKey(-INFINITY);
  uint32_t largest = 0, least = ~0u;
  for_each([&](uint64_t token) {
    const uint32_t key = static_cast<uint32_t>(token >> 32);
    largest = max(largest, key);
    if (key > masked) least = min(least, key);
  });
  largest = __reduce_max_sync(~0u, largest);
  least = __reduce_min_sync(~0u, least);
  if (block.lane() == 0) {
    atomicMax(&bins.largest, largest);
    atomicMin(&bins.least, least);
  }
  block.SyncBlock();

  const float max = semantics::ValueOfKey(bins.largest);
  const float lowest = semantics::ValueOfKey(bins.least);
  const float scale = start.scales.filter;
  const float slope = __fdividef(TopBins::kBins, max - lowest);
  // Never falls as x falls, also where a difference or the slope is not finite.
  auto bin_of = [&](uint64_t token) {
    return static_cast<int>(fminf((max - ValueOf(token)) * slope, TopBins::kBins - 1.0f));
  };
  auto weight_of = [&](uint64_t token) { return semantics::Weight(ValueOf(token), max, scale); };
  uint64_t likely = 0;  // tokens that min-p keeps
  for_each([&](uint64_t token) {
    const int bin = bin_of(token);
    atomicAdd(&bins.counts[bin], 1u);
    if (!has_top_p && !has_min_p_first) return;
    const uint64_t weight = weight_of(token);
    likely += weight >= least_weight ? 1 : 0;
    if (!has_top_p) return;
    atomicAdd(&bins.low[bin], static_cast<uint32_t>(weight) & ((1u << TopBins::kLowBits) - 1));
    atomicAdd(&bins.high[bin], static_cast<uint32_t>(weight >> TopBins::kLowBits));
  });
  block.SyncBlock();

  // Counts above masses: what this thread's bins have, and what lies above them.
  const int share = TopBins::kBins / block.threads();
  uint64_t of_bins[TopBins::kMostBinsAThread] = {};
  uint64_t mine = 0;
#pragma unroll
  for (int b = 0; b < TopBins::kMostBinsAThread; ++b) {
    if (b >= share) break;
    const int bin = thread * share + b;
    of_bins[b] = (uint64_t{bins.counts[bin]} << 52) + bins.low[bin] +
                 (uint64_t{bins.high[bin]} << TopBins::kLowBits);
    mine += of_bins[b];
  }
  const uint64_t above = block.SumBefore(mine);
  // holds_boundary(above a bin, through it), for one bin at most.
  auto find_bin = [&](TopBins::Place& place, auto holds_boundary) {
    uint64_t before = above;
#pragma unroll
    for (int b = 0; b < TopBins::kMostBinsAThread; ++b) {
      if (b >= share) break;
      if (holds_boundary(before, before + of_bins[b])) {
        place.bin = thread * share + b;
        place.count = static_cast<uint32_t>(before >> 52);
        place.mass = before & kMassMask;
      }
      before += of_bins[b];
    }
    block.SyncBlock();
  };
  auto gather = [&](TopBins::Place& place) {
    for_each([&](uint64_t token) {
      if (bin_of(token) != place.bin) return;
      const uint32_t at = atomicAdd(&place.in_bin, 1u);
      if (at >= TopBins::kMostInBin) return;
      bins.tokens[at] = token;
      bins.weights[at] = weight_of(token);
    });
    block.SyncBlock();
  };
  // visit(token, its weight, how many tokens come before it, their mass) of those gathered.
  auto rank = [&](const TopBins::Place& place, auto visit) {
    if (thread < static_cast<int>(place.in_bin)) {
      const uint64_t token = bins.tokens[thread];
      uint32_t count = place.count;
      uint64_t mass = place.mass;
#pragma unroll 4
      for (uint32_t i = 0; i < place.in_bin; ++i) {
        if (bins.tokens[i] <= token) continue;
        ++count;
        mass += bins.weights[i];
      }
      visit(token, bins.weights[thread], count, mass);
    }
    block.SyncBlock();
  };

  uint32_t wanted = static_cast<uint32_t>(min(params.top_k, from.size));
  // A list without some that min-p keeps has top_k that it keeps.
  if (has_min_p_first) wanted = min(wanted, static_cast<uint32_t>(block.SumOfBlock(likely)));
  find_bin(bins.of_top_k, [&](uint64_t before, uint64_t through) {
    return before >> 52 < wanted && wanted <= through >> 52;
  });
  gather(bins.of_top_k);
  if (bins.of_top_k.in_bin > TopBins::kMostInBin) return {0, max};
  rank(bins.of_top_k, [&](uint64_t token, uint64_t weight, uint32_t count, uint64_t mass) {
    if (count + 1 != wanted) return;
    bins.last = token;
    bins.mass = mass + weight;
  });
  uint64_t last = bins.last;
  if (has_top_p) {
    // At least one is kept.
    const uint64_t target = ::max(
        uint64_t{1}, semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, bins.mass),
                                                params.profile.top_p_boundary));
    find_bin(bins.of_top_p, [&](uint64_t before, uint64_t through) {
      return (before & kMassMask) < target && (through & kMassMask) >= target;
    });
    TopBins::Place& place = bins.of_top_p;
    if (place.bin >= 0 && place.bin <= bins.of_top_k.bin) {
      gather(place);
      if (place.in_bin > TopBins::kMostInBin) return {0, max};
      rank(place, [&](uint64_t token, uint64_t weight, uint32_t, uint64_t mass) {
        if (mass < target && mass + weight >= target) bins.last = ::max(last, token);
      });
      last = bins.last;
    }
  }
  if (Has(rules, semantics::Filter::kMinPLast)) {
    uint64_t inverted = 0;  // of the last token that is likely enough
    for_each([&](uint64_t token) {
      if (token >= last && weight_of(token) >= least_weight) inverted = ::max(inverted, ~token);
    });
    last = ~block.MaxOfBlock(inverted);
  }
  return {last, max};
}

__device__ inline Cut CutOfBins(const Team& block, const ListedTokens& from,
                                const BinnedTop& kept) {
  const float lower = ValueOf(kept.last);
  uint64_t counts = 0;  // of what is kept, and of the ties among it
  for (int i = block.thread(); i < from.size; i += block.threads()) {
    if (from.tokens[i] < kept.last) continue;
    counts += (uint64_t{1} << 32) + (ValueOf(from.tokens[i]) == lower ? 1 : 0);
  }
  counts = block.SumOfBlock(counts);
  Cut cut;
  cut.count = static_cast<int32_t>(counts >> 32);
  cut.lower = lower;
  cut.ties_kept = static_cast<int32_t>(counts & ~0u);
  return cut;
}

}  // namespace sluice::cuda
