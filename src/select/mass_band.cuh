// Top-p on a row whose nucleus no list holds, by one more read: a sample from all over the row
// guesses a band of values that holds the boundary. The mass above the band is summed up, and only
// what lies in it, some hundredths of the row, is counted in bins: so thin that for almost every
// token it is certain whether it is kept.
#pragma once

#include "select/nucleus.cuh"
#include "select/spread_sample.cuh"

namespace sluice::cuda {

// Bins of value, in shared memory: in the room of those of FirstRead.
struct BandBins {
  static constexpr int kBins = 1024;
  static constexpr int kMostBinsAThread = 2;  // blocks have 512 threads or more

  __device__ bool Has(float x) const { return x >= band.low && x < band.high; }
  __device__ int Of(float x) const {
    return static_cast<int>(fminf((x - band.low) * slope, kBins - 1.0f));
  }
  __device__ float ValueAt(float place) const { return band.low + place / slope; }

  Band band;
  float slope;
};
static_assert(BandBins::kBins == BandBins::kMostBinsAThread * 512);

// In shared memory, of every block.
struct BandMemory {
  // Of the first block, for all.
  BandBins bins;  // a slope of 0: no band is guessed
  float offset;   // of the unit of weights
  float sampled;  // the largest value of the sample
  Band of_boundary;
  int kept_from;   // a token of this bin or above it is kept for certain,
  int dropped_to;  // of this one or below it dropped
  int kept_bin;    // the least one of the former that has a token
  bool is_known;

  float above[kMostWarps];
  double above_of_blocks[kMostBlocks];
};

// By the first block.
template <DType kDType, bool kPatched>
__device__ void GuessBand(const Team& block, const VectorSlice<kDType, kPatched>& slice,
                          const RowStart& start, uint32_t* bins, BandMemory& memory) {
  using Sample = SpreadSample<kDType, kPatched>;
  constexpr int kBins = BandBins::kBins;
  constexpr float kAnOctave = 64.0f;
  constexpr float kUnit = 0x1p16f;  // 2^14 tokens have a sum of 30 bits
  constexpr float kOctaves = 5.0f;  // of the floor below the mass: 32 contenders are expected
  const Sample sample(block, slice);
  if (block.thread() == 0) memory.bins = {};
  for (int i = block.thread(); i < kBins; i += block.threads()) bins[i] = 0;
  uint32_t largest = 0;
#pragma unroll
  for (const uint32_t key : sample.keys()) largest = max(largest, key);
  largest = static_cast<uint32_t>(block.MaxOfBlock(largest));  // its barriers are behind the bins
  const float scale = start.scales.filter;
  const float most = semantics::ValueOfKey(largest);
  double squares = 0.0;
#pragma unroll
  for (const uint32_t key : sample.keys()) {
    const float octaves = (most - semantics::ValueOfKey(key)) * scale;
    if (key <= semantics::OrderKey(-INFINITY) || !(octaves < kBins / kAnOctave)) continue;
    const float weight = Exp2Approx(-octaves);
    squares += static_cast<double>(weight * weight);
    atomicAdd(bins + static_cast<int>(octaves * kAnOctave), static_cast<uint32_t>(weight * kUnit));
  }
  block.SyncBlock();
  squares = block.ReduceBlock(squares, [](double a, double b) { return a + b; });
  const int share = kBins / block.threads();
  uint64_t of_bins[BandBins::kMostBinsAThread] = {};
  uint64_t mine = 0;
#pragma unroll
  for (int b = 0; b < BandBins::kMostBinsAThread; ++b) {
    if (b < share) mine += of_bins[b] = bins[block.thread() * share + b];
  }
  const auto [before, all] = block.SumsOfBlock(mine);
  // More than four times the deviation of the share that a sample has above a value.
  const float total = static_cast<float>(all);
  const float p = start.params.top_p;
  const float doubt =
      3.0f * SqrtApprox(p * (1.0f - p) * static_cast<float>(squares)) * kUnit / total + 0.001f;
  const uint64_t least = static_cast<uint64_t>(fmaxf(p - doubt, 0.0f) * total);
  const uint64_t enough = static_cast<uint64_t>((p + doubt) * total);
  uint64_t through = before;
#pragma unroll
  for (int b = 0; b < BandBins::kMostBinsAThread; ++b) {
    if (b >= share) break;
    const uint64_t above = through;
    through += of_bins[b];
    const float place = static_cast<float>(block.thread() * share + b);
    if (above < least && through >= least) {
      memory.bins.band.high = most - place / (kAnOctave * scale);
    }
    if (above < enough && through >= enough) {
      memory.bins.band.low = most - (place + 1.0f) / (kAnOctave * scale);
      memory.bins.slope = 1.0f;  // there is one
    }
  }
  block.SyncBlock();
  if (block.thread() != 0) return;
  const Band band = memory.bins.band;
  const float floor = most * scale + log2f(total / (kUnit * sample.share()) * p) - kOctaves;
  const float slope = __fdividef(static_cast<float>(BandBins::kBins), band.high - band.low);
  const bool is_known = memory.bins.slope > 0.0f && least > 0 && band.low < band.high &&
                        slope < INFINITY && fabsf(floor) < 4000.0f;  // false for a NaN
  memory.bins.slope = is_known ? slope : 0.0f;
  memory.sampled = most;
  memory.offset = WeightUnit::kLogFields - floor;
}

// kScreens: contenders of the draw are wanted too, as of FirstRead; the first block gets them.
template <bool kScreens, DType kDType, bool kPatched>
__device__ void ReadBand(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                         const BandBins& bins, const WeightUnit& unit, const NoiseKey& key,
                         FirstReadMemory& first, BandMemory& memory) {
  using Tokens = Eight<kDType>;
  const semantics::Stream stream = semantics::GumbelStream(key);
  float largest = -INFINITY;
  float mass = 0.0f, above = 0.0f;
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    float weight[Tokens::kTokens];
    largest = fmaxf(largest, tokens.Largest());
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      const float x = tokens.x[e];
      weight[e] = unit.WeightOf(x);
      mass += weight[e];
      if (x >= bins.band.high) above += weight[e];
      if (bins.Has(x)) atomicAdd(first.bins + bins.Of(x), 1u);
    }
    mass = Again(mass);  // as in FirstRead
    if constexpr (kScreens) {
      const semantics::Block noise = NoiseOfEight(tokens, KeyAgain(key), stream);
      bool has_any = false;
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) {
        has_any |= IsContender(FieldAsFloat(noise, e), weight[e]);
      }
      if (has_any && slice.Has(tokens.first)) Note(first.contenders, tokens);
    }
  });
  const uint32_t of_warp = __reduce_max_sync(~0u, semantics::OrderKey(largest));
  if (team.lane() == 0) first.largest[team.thread() / kWarpSize] = of_warp;
  ShareOfWarp(team, mass, first.mass);
  ShareOfWarp(team, above, memory.above);
  team.SyncBlock();
  ShareOfBlock(team, first.mass, first.mass_of_blocks);
  ShareOfBlock(team, memory.above, memory.above_of_blocks);
  if constexpr (kScreens) {
    ListNoted(team, slice, first.contenders, 0, [&](float x, int id) {
      const float field = FieldAsFloat(NoiseAround(id, key, stream), id % 8);
      return x != -INFINITY && IsContender(field, unit.WeightOf(x));
    });
  }
  team.Sync();
  if (team.blocks() == 1) return;
  // The first block gets the counts of all, a share of them by every block.
  const int share = BandBins::kBins / team.blocks();
  for (int i = team.thread(); i < share; i += team.threads()) {
    uint32_t* bin = first.bins + team.rank() * share + i;
    *team.Of(0, bin) = team.SumOverBlocks(bin);
  }
  team.Sync();
}

// By the first block.
__device__ inline void FindBoundaryInBand(const Team& team, const BandBins& bins,
                                          const WeightUnit& unit, float top_p, int vocab,
                                          const FirstReadMemory& first, BandMemory& memory) {
  const Team block = team.Block();
  const double mass = SumOfTeam(team, first.mass_of_blocks);
  const double above_band = SumOfTeam(team, memory.above_of_blocks);
  // As in MassesOf; and what a bin's tokens may differ from its middle, with values of so many
  // bits.
  const double doubt =
      1e-5 + 0x1p-40 * vocab + 0x1p-24 * (vocab / (team.threads() * team.blocks()) + 64);
  const float largest = fmaxf(fabsf(bins.band.low), fabsf(bins.band.high));
  const double of_bin =
      1e-5 + static_cast<double>(unit.scale * (__fdividef(0.7f, bins.slope) + 0x1p-21f * largest));
  const double p = semantics::Fixed32(top_p) * 0x1p-32;
  const double least_target = p * mass * (1.0 - doubt);
  const double most_target = p * mass * (1.0 + doubt);
  const int share = BandBins::kBins / block.threads();
  const int first_bin = BandBins::kBins - 1 - block.thread() * share;  // the largest values first
  auto weight_in = [&](int bin) {
    return static_cast<double>(unit.WeightOf(bins.ValueAt(static_cast<float>(bin) + 0.5f)));
  };
  double mine = 0.0;
  for (int b = 0; b < share; ++b) mine += first.bins[first_bin - b] * weight_in(first_bin - b);
  double above = block.SumBefore(mine);
  const double in_band = block.ReduceBlock(mine, [](double a, double b) { return a + b; });
  auto most = [&](double counted) { return above_band * (1.0 + doubt) + counted * (1.0 + of_bin); };
  auto least = [&](double counted) {
    return above_band * (1.0 - doubt) + counted * (1.0 - of_bin);
  };
  if (block.thread() == 0) {
    memory.kept_from = memory.kept_bin = BandBins::kBins;
    memory.dropped_to = -1;
    memory.is_known = of_bin < 0.01 && mass < INFINITY && most(0.0) < least_target &&
                      least(in_band) >= most_target;
  }
  block.SyncBlock();
  for (int bin = first_bin; bin > first_bin - share; --bin) {
    const uint32_t count = first.bins[bin];
    const double here = count * weight_in(bin);
    if (most(above + here) < least_target) {  // all of them and what is above them
      atomicMin(&memory.kept_from, bin);
      if (count > 0) atomicMin(&memory.kept_bin, bin);
    }
    if (least(above) >= most_target) atomicMax(&memory.dropped_to, bin);
    above += here;
  }
  block.SyncBlock();
  if (block.thread() != 0) return;
  // Edges are known to a small part of a bin; what is not kept for certain begins in this band.
  memory.of_boundary = {memory.dropped_to < 0
                            ? bins.band.low
                            : bins.ValueAt(static_cast<float>(memory.dropped_to) + 0.5f),
                        memory.kept_bin == BandBins::kBins
                            ? bins.band.high
                            : bins.ValueAt(static_cast<float>(memory.kept_bin) + 1.5f)};
}

// What one read says of a row, the same in all threads; the boundary is in the memory of the first
// block, for its threads, and behind a Sync for others.
struct BandRead {
  bool has_band = false;
  BandBins bins;
  WeightUnit unit;
  float max;  // of the row
};

// By all threads of the team, behind a Sync.
template <bool kScreens, DType kDType, bool kPatched>
__device__ BandRead ReadByBand(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                               const RowStart& start, FirstReadMemory& first, BandMemory& memory) {
  BandRead read;
  if constexpr (kPatched) AwaitKernelBefore();  // as ForEachPatch does
  if (slice.Patches() > 0) return read;
  if (team.rank() == 0) {
    GuessBand(team.Block(), slice, start, first.bins, memory);
    team.SyncBlock();
  }
  for (int i = team.thread(); i < BandBins::kBins; i += team.threads()) first.bins[i] = 0;
  Clear(team, first.contenders);
  team.Sync();
  const BandMemory& guess = *team.Of(0, &memory);
  read.bins = guess.bins;
  read.unit = {start.scales.filter, guess.offset};
  if (read.bins.slope == 0.0f) return read;
  ReadBand<kScreens>(team, slice, read.bins, read.unit, start.key, first, memory);
  read.max = LargestOfTeam(team, first);
  if (team.rank() == 0) {
    FindBoundaryInBand(team, read.bins, read.unit, start.params.top_p, slice.vocab(), first,
                       memory);
    team.SyncBlock();
  }
  read.has_band = true;
  return read;
}

}  // namespace sluice::cuda
