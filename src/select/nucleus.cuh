// Top-p over a whole row in two reads, exact: a histogram guesses a band of values that holds the
// boundary, integer masses certify it, and the boundary is found among the tokens of the band.
#pragma once

#include "backend/mass_sum.cuh"
#include "select/sorted_rules.cuh"

namespace sluice::cuda {

// Whether top-p alone decides the row. (A team of SelectNucleus has a bounded share of the row.)
__device__ inline bool IsNucleusAlone(const Team& team, const SelectParams& params, int vocab) {
  return !semantics::IsGreedy(params) && params.top_p < 1 &&
         (params.top_k <= 0 || params.top_k >= vocab) && params.min_p == 0 &&
         params.top_n_sigma == 0 && params.typical_p == 1 && params.xtc_probability == 0 &&
         vocab / (team.threads() * team.blocks()) < MassSum::kMostAddends - 64;
}

// Counts by value, over 42 octaves of weight around the largest value of the sample.
struct BandGuess {
  static constexpr int kBins = 4096;
  static constexpr float kBinsAnOctave = 96.0f;
  static constexpr float kOctavesBelow = 22.0f;  // the largest of the sample; 20 are above it

  __device__ BandGuess(float sampled_max, float scale)
      : slope(scale * kBinsAnOctave),
        offset(kOctavesBelow * kBinsAnOctave - sampled_max * slope),
        origin(sampled_max) {}

  // Negative below the first bin.
  __device__ float PlaceOf(float x) const {
    return fminf(__fmaf_rn(x, slope, offset), kBins - 0.5f);
  }
  __device__ float LeastOf(int bin) const {
    if (bin <= 0) return semantics::kLowestValue;
    if (bin >= kBins) return INFINITY;
    return origin + (static_cast<float>(bin) - kOctavesBelow * kBinsAnOctave) / slope;
  }
  // The weight of a token in a bin, in some unit. (What overflows is a guess gone wrong, no more.)
  static __device__ uint64_t WeightIn(int bin) {
    const float octave = (static_cast<float>(bin) + 0.5f) / kBinsAnOctave;
    return static_cast<uint64_t>(exp2f(octave + 8.0f) + 0.5f);
  }

  float slope;
  float offset;
  float origin;
};

// In shared memory.
struct NucleusMemory {
  TokenList list;
  uint32_t bins[BandGuess::kBins];
  // Of the first block, for the others.
  Cut cut;
  int32_t last_at_lower;
};

struct Nucleus {
  Cut cut;
  int32_t last_at_lower;  // the id of the last kept token equal to cut.lower
  float max;
  int band;  // tokens in the first block's `sorted`: those of the band
};

// The bins around the share p of the mass: list.least is the first of them, list.most the last.
__device__ inline void FindBandInTotals(const Team& team, TokenList& list, const uint32_t* totals,
                                        float p) {
  const int share = BandGuess::kBins / team.threads();
  const int first = BandGuess::kBins - 1 - team.thread() * share;  // the largest values first
  constexpr int kMostShare = BandGuess::kBins / kLeastThreads;  // of blocks of 512 threads and more
  uint32_t counts[kMostShare];
  uint64_t masses[kMostShare];
  uint64_t mine = 0;
#pragma unroll
  for (int i = 0; i < kMostShare; ++i) {
    if (i >= share) continue;
    counts[i] = totals[first - i];
    masses[i] = counts[i] * BandGuess::WeightIn(first - i);
    mine += masses[i];
  }
  const uint64_t before = team.SumBefore(mine);
  const uint64_t total = team.SumOfBlock(mine);
  const double target = static_cast<double>(p) * static_cast<double>(total);
  // A token's weight is known to half a bin, 0.4 %. Where many tokens are in doubt for that, they
  // are so light that their errors cancel.
  for (const double shares : {256.0, 1024.0, 4096.0}) {
    const double doubt = static_cast<double>(total) / shares;
    double through = static_cast<double>(before);
    uint32_t in_band = 0;
#pragma unroll
    for (int i = 0; i < kMostShare; ++i) {
      if (i >= share) continue;
      const double above = through;
      through += static_cast<double>(masses[i]);
      if (through >= target - doubt && above <= target + doubt) {
        atomicMin(&list.least, static_cast<uint32_t>(first - i));
        atomicMax(&list.most, static_cast<uint32_t>(first - i));
        in_band += counts[i];
      }
    }
    if (team.SumOfBlock(in_band) <= static_cast<uint32_t>(team.threads()) * 7 / 8) break;
    if (shares == 4096.0) break;
    if (team.thread() == 0) {
      list.least = ~0u;
      list.most = 0;
    }
    team.SyncBlock();
  }
  team.SyncBlock();
}

// From the counts of the team, the band, in every block.
__device__ inline void FindBand(const Team& team, NucleusMemory& memory, float p) {
  TokenList& list = memory.list;
  // The counts of the team go to the first block, a share of the bins by every block: neighbours at
  // once, because other blocks are far.
  uint32_t* totals = reinterpret_cast<uint32_t*>(list.key);
  const int bins_a_block = BandGuess::kBins / team.blocks();
  for (int i = team.thread(); i < bins_a_block; i += team.threads()) {
    const int bin = team.rank() * bins_a_block + i;
    *team.Of(0, totals + bin) = team.SumOverBlocks(memory.bins + bin);
  }
  team.Sync();
  if (team.rank() == 0) FindBandInTotals(team.Block(), list, totals, p);
  team.Sync();
  const TokenList& first = *team.Of(0, &list);
  list.band_first = first.least;
  list.band_last = first.most;
  team.Sync();
}

// All threads of the team call it and get the same answer: whether the row is decided. The visitor
// gets Begin(max of the row), then every token that lies above the band, which is kept: by
// See(is_above, x, id), for all tokens and by all lanes of a warp at once, and by SeeAlone(x, id),
// lane by lane, at the edges of the row.
template <DType kDType, class Visitor>
__device__ bool SelectNucleus(const Team& team, const VectorSlice<kDType>& slice,
                              FirstVectors<kDType>& loaded, NucleusMemory& memory,
                              const SelectParams& params, Visitor& visitor, Nucleus& nucleus) {
  using Unpacked = Vector<kDType>;
  TokenList& list = memory.list;
  const float scale = semantics::ScalesOf(params).filter;
  Clear(team, list);
  for (int bin = team.thread(); bin < BandGuess::kBins; bin += team.threads()) {
    memory.bins[bin] = 0;
  }
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce<kDType>; ++i) {
    const Unpacked vector(loaded[i]);
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) largest = fmaxf(largest, vector.x[e]);
  }
  const float sampled =
      semantics::ValueOfKey(static_cast<uint32_t>(team.Max(semantics::OrderKey(largest))));
  if (!(sampled > -INFINITY && sampled < INFINITY)) return false;
  const BandGuess guess(sampled, scale);

  // The first read.
  bool is_spoilt = false;
  auto count = [&](float x) {
    is_spoilt |= !(x < INFINITY);
    largest = fmaxf(largest, x);
    const float place = guess.PlaceOf(x);
    if (place >= 0.0f) atomicAdd(&memory.bins[static_cast<int>(place)], 1u);
  };
  slice.ForEachAtEdges([&](float x, int) { count(x); });
  slice.Stream(loaded, [&](const Unpacked& vector, int) {
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) count(vector.x[e]);
  });
  const uint64_t spoilt_or_max =
      team.Max(is_spoilt ? ~uint64_t{0} : uint64_t{semantics::OrderKey(largest)});
  if (spoilt_or_max == ~uint64_t{0}) return false;
  nucleus.max = semantics::ValueOfKey(static_cast<uint32_t>(spoilt_or_max));
  team.Sync();
  FindBand(team, memory, params.top_p);
  const float low = guess.LeastOf(static_cast<int>(list.band_first));
  const float high = guess.LeastOf(static_cast<int>(list.band_last) + 1);

  // The second.
  visitor.Begin(nucleus.max);
  MassSum all, above;
  auto see = [&](float x, int id) {
    const MassSum::Addend addend = MassSum::Of(x, nucleus.max, scale);
    all.Add(addend);
    if (x >= high) {
      above.Add(addend);
    } else if (x >= low) {
      Push(list, x, id);
    }
  };
  slice.ForEachAtEdges([&](float x, int id) {
    see(x, id);
    if (x >= high) visitor.SeeAlone(x, id);
  });
  uint4 again[kVectorsAtOnce<kDType> / 2];  // half of the registers for more arithmetic
  slice.LoadFirst(again);
  slice.Stream(again, [&](const Unpacked& vector, int id) {
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) {
      see(vector.x[e], id + e);
      visitor.See(vector.x[e] >= high, vector.x[e], id + e);
    }
  });
  const uint64_t total = team.Sum(all.Total());
  const uint64_t mass_above = team.Sum(above.Total());
  const uint64_t count_above = team.Sum(above.addends());
  nucleus.band = Gather(team, list, 0);
  const uint64_t target =
      max(uint64_t{1}, semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, total),
                                                  params.profile.top_p_boundary));
  if (nucleus.band <= 0 || nucleus.band > team.threads() || mass_above >= target) return false;

  // The boundary, by the first threads of the first block.
  if (team.rank() == 0 && team.thread() < ThreadsToSort(nucleus.band)) {
    const FirstThreads first = team.FirstThreads(ThreadsToSort(nucleus.band));
    const int i = first.thread();
    if (i < nucleus.band) list.key[i] = list.sorted[i];
    first.SyncBlock();
    SortTop(first, list, nucleus.band);
    const float x = i < nucleus.band ? ValueOf(list.sorted[i]) : -INFINITY;
    const uint64_t weight = semantics::Weight(x, nucleus.max, scale);
    const uint64_t before = mass_above + first.SumBefore(weight);
    const bool reaches = mass_above + first.SumOfBlock(weight) >= target;
    int end = first.CountOfBlock(i < nucleus.band && before < target);
    const float lower = ValueOf(list.sorted[end - 1]);
    const int above = first.CountOfBlock(x > lower);
    if (params.profile.ties == Ties::kAll) end = first.CountOfBlock(x >= lower);
    if (i == 0) {
      memory.cut = Cut{};
      memory.cut.lower = lower;
      memory.cut.ties_kept = end - above;
      memory.cut.count = static_cast<int32_t>(count_above) + end;
      memory.last_at_lower = reaches ? IdOf(list.sorted[end - 1]) : -1;
    }
  }
  team.Sync();
  const NucleusMemory& of_first = *team.Of(0, &memory);
  nucleus.cut = of_first.cut;
  nucleus.last_at_lower = of_first.last_at_lower;
  team.Sync();
  return nucleus.last_at_lower >= 0;
}

// For those who need no more than the Cut.
struct NoVisitor {
  __device__ void Begin(float) {}
  __device__ void See(bool, float, int) {}
  __device__ void SeeAlone(float, int) {}
};

}  // namespace sluice::cuda
