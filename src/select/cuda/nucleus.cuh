// Top-p over a whole row. The bins of the first read certify for almost every token whether it is
// kept: enough to draw one. A second read finds the Cut: integer masses certify a band of values
// that holds the boundary, and the boundary is found among the tokens of the band.
#pragma once

#include "cuda/cut_ids.cuh"
#include "cuda/mass_sum.cuh"
#include "cuda/weight_histogram_pass.cuh"
#include "select/cuda/sorted_rules.cuh"

namespace sluice::cuda {

// Whether top-p alone decides the row. (A thread has a bounded share of the row.)
__device__ inline bool IsNucleusAlone(const Team& team, const SelectParams& params, int vocab) {
  const semantics::Scales scales = semantics::ScalesOf(params);
  return semantics::RulesOf(params, vocab) == semantics::Rules(semantics::Filter::kTopP) &&
         scales.filter == scales.draw &&
         vocab / (team.threads() * team.blocks()) < MassSum::kMostAddends - 64;
}

// The tokens above all bins are known one by one. A row with more is left to others.
inline constexpr int kMostAboveBins = 256;

// The boundary by the first read. In shared memory, of the first block.
struct Boundary {
  int kept_from;   // a token of this bin or one above it is kept for certain,
  int dropped_to;  // of this bin or one below it dropped (-1: below all bins; -2: none)
  uint32_t top_count;
  uint64_t top[kMostAboveBins];  // the tokens above all bins, if they are no more than that

  __device__ uint32_t TopCount() const { return min(top_count, uint32_t{kMostAboveBins}); }
};

// The masses of a row, as far as the first read gives them.
struct KnownMasses {
  double least_target;
  double most_target;
  double top;  // of the tokens above all bins
  double least_total;
  double most_total;
};

// Before FindBoundary, with a barrier between the two.
__device__ inline void Clear(const Team& team, Boundary& boundary) {
  if (team.thread() == 0) {
    boundary.kept_from = WeightBins::kBins;
    boundary.dropped_to = -2;
    boundary.top_count = 0;
  }
}

// Lists the tokens above all bins, which are among the contenders. By the first block.
__device__ inline void ListAboveBins(const Team& block, const WeightHistogramMemory& memory,
                                     int contenders, const WeightBins& bins, Boundary& boundary) {
  for (int i = block.thread(); i < contenders; i += block.threads()) {
    const uint64_t token = memory.contenders.tokens[i];
    if (!bins.IsAbove(ValueOf(token))) continue;
    const uint32_t place = atomicAdd(&boundary.top_count, 1u);
    if (place < kMostAboveBins) boundary.top[place] = token;
  }
  block.SyncBlock();
}

__device__ inline KnownMasses MassesOf(const Team& team, const Boundary& boundary,
                                       const WeightUnit& unit, const ReadMass& read, float p,
                                       int vocab) {
  KnownMasses masses;
  masses.top = 0.0;
  for (uint32_t i = static_cast<uint32_t>(team.lane()); i < boundary.TopCount(); i += kWarpSize) {
    masses.top += static_cast<double>(unit.WeightOf(ValueOf(boundary.top[i])));
  }
  masses.top = Team::ReduceWarp(masses.top, [](double a, double b) { return a + b; });
  // Weights are known to 1e-5, but for the unit in which they are integers, and a thread adds its
  // share of them up in fp32.
  const double doubt = 1e-5 + 0x1p-40 * vocab +
                       0x1p-24 * (vocab / (team.threads() * team.blocks()) + 64) + read.doubt;
  masses.least_total = read.mass * (1.0 - doubt);
  masses.most_total = read.mass * (1.0 + doubt);
  const double share = semantics::Fixed32(p) * 0x1p-32;
  masses.least_target = share * masses.least_total;
  masses.most_target = share * masses.most_total;
  return masses;
}

// By the first block.
__device__ inline void FindBoundary(const Team& block, const WeightHistogramMemory& memory,
                                    const WeightBins& bins, const KnownMasses& masses, int vocab,
                                    Boundary& boundary) {
  constexpr double kMore = 1.0 + WeightBins::kDoubt;
  constexpr double kLess = 1.0 - WeightBins::kDoubt;
  const int share = WeightBins::kBins / block.threads();
  const int first = WeightBins::kBins - 1 - block.thread() * share;  // the largest weights first
  float mine = 0.0f;
  float weight = bins.WeightIn(first);
  for (int i = 0; i < share; ++i) {
    mine += static_cast<float>(memory.bins[first - i]) * weight;
    weight *= WeightBins::kOfNextBin;
  }
  double above = block.SumBefore(static_cast<double>(mine));
  const double in_bins =
      block.ReduceBlock(static_cast<double>(mine), [](double a, double b) { return a + b; });
  const double tail = vocab * static_cast<double>(bins.WeightIn(0));  // at most, below the bins
  // The mass above a bin has two bounds on either side: from what was counted above it, and from
  // what was not.
  auto most = [&](double counted) {
    return fmin(masses.top + counted * kMore, masses.most_total - (in_bins - counted) * kLess);
  };
  auto least = [&](double counted) {
    return fmax(masses.top + counted * kLess,
                masses.least_total - (in_bins - counted) * kMore - tail);
  };
  int kept_from = WeightBins::kBins;
  int dropped_to = -1;
  if (most(above + mine) < 0.99 * masses.least_target) {  // far above the boundary,
    kept_from = first - share + 1;
  } else if (least(above) >= masses.most_target) {  // or below it
    dropped_to = first;
  } else {
#pragma unroll 1
    for (int bin = first; bin > first - share; --bin) {
      const double of_one = static_cast<double>(bins.WeightIn(bin));
      const double here = memory.bins[bin] * of_one;
      const double others = memory.bins[bin] > 1 ? (here - of_one) * kMore : 0.0;
      if (most(above) + others < masses.least_target) kept_from = bin;
      if (least(above) >= masses.most_target && dropped_to < 0) dropped_to = bin;
      above += here;
    }
  }
  if (kept_from < WeightBins::kBins) atomicMin(&boundary.kept_from, kept_from);
  if (dropped_to >= 0) atomicMax(&boundary.dropped_to, dropped_to);
  block.SyncBlock();
}

__device__ inline Keeping KeepingOf(uint64_t token, const WeightUnit& unit, const WeightBins& bins,
                                    const KnownMasses& masses, const Boundary& boundary,
                                    Ties ties) {
  const float x = ValueOf(token);
  if (!bins.IsAbove(x)) {
    const int place = static_cast<int>(bins.Of(x));
    const int bin = place < WeightBins::kBins ? place : -1;  // below all bins
    return bin >= boundary.kept_from    ? Keeping::kKept
           : bin <= boundary.dropped_to ? Keeping::kDropped
                                        : Keeping::kUnknown;
  }
  // Where a boundary keeps all ties, the first of them decides.
  const uint64_t first = ties == Ties::kAll ? token | ~0u : token;
  float before = 0.0f;
#pragma unroll 4
  for (uint32_t i = 0; i < boundary.TopCount(); ++i) {
    before += boundary.top[i] > first ? unit.WeightOf(ValueOf(boundary.top[i])) : 0.0f;
  }
  // Each is known to 1e-5, and so is a sum of so few in fp32, twice.
  const double mass = static_cast<double>(before);
  return before == 0.0f || mass * (1.0 + 3e-5) < masses.least_target ? Keeping::kKept
         : mass * (1.0 - 3e-5) >= masses.most_target                 ? Keeping::kDropped
                                                                     : Keeping::kUnknown;
}

// Values that hold the boundary: from `low` to below `high`.
struct Band {
  float low;
  float high;
};

// The bins in doubt, and the nearest kept ones with a token. By the first block.
__device__ inline Band FindBand(const Team& block, const WeightHistogramMemory& memory,
                                const WeightBins& bins, const Boundary& boundary) {
  const int share = WeightBins::kBins / block.threads();
  const int first = block.thread() * share;
  uint64_t nearest = 0;  // inverted
  for (int bin = first + share - 1; bin >= first; --bin) {
    if (bin >= boundary.kept_from && memory.bins[bin] > 0) nearest = ~static_cast<uint32_t>(bin);
  }
  nearest = block.MaxOfBlock(nearest);
  const int last = static_cast<int>(~static_cast<uint32_t>(nearest));  // -1: none
  // Edges are known to a small part of a bin.
  return {bins.ValueAt(static_cast<float>(boundary.dropped_to) + 0.4f),
          nearest == 0 ? INFINITY : bins.ValueAt(static_cast<float>(last) + 0.6f)};
}

struct Nucleus {
  Cut cut;
  int32_t last_at_lower;  // the id of the last kept token equal to cut.lower; negative: unknown
};

// The second read. All threads of the team call it and get the same answer. shared: of every block.
template <DType kDType, bool kPatched>
__device__ Nucleus SelectInBand(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                                const Band& band, float max, const SelectParams& params,
                                TokenList& list, Nucleus& shared) {
  using Tokens = Eight<kDType>;
  const float scale = semantics::ScalesOf(params).filter;
  Clear(team, list);
  if (team.thread() == 0) shared.last_at_lower = -1;
  team.Sync();
  // What a patch replaces may be larger than all that the row has: it is taken out as it was put
  // in.
  auto addend_of = [&](float x) { return MassSum::Of(kPatched ? fminf(x, max) : x, max, scale); };
  MassSum all, heavier;
  uint32_t seen = 0, seen_heavier = 0;
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    bool has_any = false;
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      const float x = tokens.x[e];
      const MassSum::Addend addend = addend_of(x);
      all.Add(addend);
      if (x >= band.high) {
        heavier.Add(addend);
        ++seen_heavier;
      }
      has_any |= x >= band.low && x < band.high;
    }
    seen += Tokens::kTokens;
    if (has_any) Note(list, tokens);
  });
  uint64_t my_total = all.Total(seen);
  uint64_t my_mass_above = heavier.Total(seen_heavier);
  uint64_t my_count_above = seen_heavier;
  slice.ForEachPatch(team, [&](float before, float x, int id) {
    const uint64_t added = semantics::Weight(x, max, scale);
    const uint64_t replaced = semantics::Weight(fminf(before, max), max, scale);
    my_total += added - replaced;
    my_mass_above += (x >= band.high ? added : 0) - (before >= band.high ? replaced : 0);
    my_count_above += (x >= band.high ? 1 : 0) - (before >= band.high ? 1 : 0);
    if (x >= band.low && x < band.high) ListToken(*team.Of(0, &list), x, id);
  });
  team.SyncBlock();
  ListNoted(team, slice, list, 0, [&](float x, int) { return x >= band.low && x < band.high; });
  const uint64_t total = team.Sum(my_total);
  const uint64_t mass_above = team.Sum(my_mass_above);
  const uint64_t count_above = team.Sum(my_count_above);
  team.SyncBlock();  // the first threads go on to other sums in the same memory
  const int size = team.rank() == 0 && list.IsComplete() ? static_cast<int>(list.count) : 0;
  const uint64_t target =
      ::max(uint64_t{1}, semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, total),
                                                    params.profile.top_p_boundary));
  // The boundary, by the first threads of the first block.
  const bool is_in_band =
      team.rank() == 0 && size > 0 && size <= team.threads() && mass_above < target;
  if (is_in_band && team.thread() < ThreadsToSort(size)) {
    const FirstThreads first = team.FirstThreads(ThreadsToSort(size));
    SortTop(first, {list.tokens, list.room, size});
    const uint64_t* sorted = list.room;
    const int i = first.thread();
    const float x = i < size ? ValueOf(sorted[i]) : -INFINITY;
    const uint64_t weight = semantics::Weight(x, max, scale);
    const uint64_t before = mass_above + first.SumBefore(weight);
    const bool reaches = mass_above + first.SumOfBlock(weight) >= target;
    int end = first.CountOfBlock(i < size && before < target);
    const float lower = ValueOf(sorted[end - 1]);
    const int larger = first.CountOfBlock(x > lower);
    if (params.profile.ties == Ties::kAll) end = first.CountOfBlock(x >= lower);
    if (i == 0) {
      shared.cut = Cut{};
      shared.cut.lower = lower;
      shared.cut.ties_kept = end - larger;
      shared.cut.count = static_cast<int32_t>(count_above) + end;
      shared.last_at_lower = reaches ? IdOf(sorted[end - 1]) : -1;
    }
  }
  team.Sync();
  const Nucleus nucleus = *team.Of(0, &shared);
  team.Sync();
  return nucleus;
}

}  // namespace sluice::cuda
