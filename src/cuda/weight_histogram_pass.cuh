// One read of a row by approximate weights: what they sum up to, how many tokens lie in each bin of
// weight, and the few tokens with noise that may win a Gumbel draw.
//
// The approximate weight of a token is 2^(x * scale + offset) by one multiplication and one
// instruction: within 2^-19 of the weight of semantics/weight.h, or a unit of it, but for a factor
// that all tokens of the row share. The offset is a guess from the first vectors of the row. A
// token is a contender unless 16 bits of its noise exclude that its score reaches a floor, which
// the best score does in all but one row of 60,000; that it does is certified in the end.
#pragma once

#include "cuda/eight_noise.cuh"
#include "cuda/radix_select.cuh"
#include "cuda/row_prologue.cuh"
#include "cuda/token_list.cuh"
#include "semantics/temperature.h"

namespace sluice::cuda {

struct WeightUnit {
  // log2(65536 ln 2), and a thousandth for every rounding.
  static constexpr float kLogFields = 15.4712f + 0.00144f;

  __device__ float WeightOf(float x) const { return Exp2Approx(__fmaf_rn(x, scale, offset)); }
  // The sum of eight, pair by pair.
  template <DType kDType>
  __device__ float WeightOf(const Eight<kDType>& tokens) const {
    float sum[Eight<kDType>::kTokens];
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) sum[e] = WeightOf(tokens.x[e]);
#pragma unroll
    for (int step = 1; step < Eight<kDType>::kTokens; step *= 2) {
#pragma unroll
      for (int e = 0; e < Eight<kDType>::kTokens; e += 2 * step) sum[e] += sum[e + step];
    }
    return sum[0];
  }

  // The floor, as a score where the log-weight of `max` is 0.
  __device__ double Floor(float max) const {
    return static_cast<double>(kLogFields) - static_cast<double>(offset) -
           static_cast<double>(max) * static_cast<double>(scale);
  }

  float scale;
  float offset;
};

// With U >= h / 2^16, e = -log2(1 - U) >= h / (2^16 ln 2), so a score is at most t - log2(h / (2^16
// ln 2)): a token is no contender when its field h is above its weight and 1. One more is for the
// rounding of the sum. True for a NaN.
__device__ inline bool IsContender(float field_and_2_23, float weight) {
  return !(field_and_2_23 > weight + (0x1p23f + 2.0f));
}

// How far the floor lies below the mass that is sampled, in octaves: 16 contenders are expected if
// that is all of it.
inline constexpr float kOctavesToFloor = 4.0f;

// As above with bins: the further the floor, the more tokens lie above all bins and are known one
// by one, so that their place at the boundary is certain, and the more contenders there are. Up to
// about 2^octaves / 1.4 p tokens lie there. What is sampled is taken for all of it, so a small
// sample has its octaves already.
__device__ inline float OctavesToFloor(float p, float sampled_share) {
  const float octaves = fminf(fmaxf(8.4f + log2f(p), kOctavesToFloor), 7.0f);
  return fmaxf(octaves + log2f(sampled_share), kOctavesToFloor);
}

// Guesses the unit such that the best score of the share p of the mass reaches the floor. False
// when the sample says nothing, or when rounding the offset could matter.
template <DType kDType>
__device__ bool GuessUnit(const Team& team, const FirstVectors& loaded, RowPrologue& start,
                          float scale, float p, float octaves, WeightUnit& unit) {
  const float sampled = LargestOfFirst(team, start);
  float mass = 0.0f;
#pragma unroll
  for (const uint4& raw : loaded) {
    const Vector<kDType> vector(raw);
#pragma unroll
    for (const float x : vector.x) mass += Exp2Approx((x - sampled) * scale);
  }
  for (int step = 1; step < ThreadsOfGroup(team); step *= 2) {
    mass += __shfl_xor_sync(~0u, mass, step);
  }
  ShareOfGroup(team, [&](int block, int group) { *team.Of(block, start.mass + group) = mass; });
  team.Sync();
  const OfGroups<float> of_groups(team, start.mass);
  float total = 0.0f;
#pragma unroll
  for (const float of_group : of_groups.value) total += of_group;
  total = Team::ReduceWarp(total, [](float a, float b) { return a + b; });
  const float floor = sampled * scale + log2f(total * p) - octaves;
  unit = {scale, WeightUnit::kLogFields - floor};
  return fabsf(floor) < 4000.0f;  // false for a NaN
}

// Bins of log-weight. A bin holds an interval of values, because a product that is rounded once
// never falls as its factor rises.
class WeightBins {
 public:
  static constexpr int kBins = 8192;
  static constexpr int kAnOctave = 256;
  static constexpr float kOfNextBin = 0.99729605608f;  // 2^(-1/256)
  // Above the last bin lie contenders alone: their weight is above every field.
  static constexpr float kTop = 16.5f;
  // By how much a bin's tokens may differ from its middle: half of its width, and rounding.
  static constexpr double kDoubt = 0.00136 + 0.0001;

  __device__ explicit WeightBins(const WeightUnit& unit)
      : slope_(unit.scale * kAnOctave),
        origin_(rintf((unit.offset - kTop) * kAnOctave) + kBins),
        rest_(unit.offset - (origin_ - kBins) / kAnOctave - kTop) {}

  // kBins: in none.
  __device__ uint32_t Of(float x) const {
    return __viaddmin_u32(__float_as_uint(__fmaf_rn(x, slope_, kMagic + origin_)),
                          0u - __float_as_uint(kMagic), kBins);
  }
  __device__ bool IsAbove(float x) const {
    return __fmaf_rn(x, slope_, kMagic + origin_) >= kMagic + kBins;
  }
  // The weight in the middle of a bin.
  __device__ float WeightIn(int bin) const {
    return Exp2Approx(static_cast<float>(bin - kBins) / kAnOctave + kTop + rest_);
  }
  // About the value at that place: a bin holds places from half below to half above it.
  __device__ float ValueAt(float place) const {
    return place < 0.0f ? semantics::kLowestValue : (place - origin_) / slope_;
  }

 private:
  static constexpr float kMagic = 0x1.8p23f;  // integers in the low bits of a sum

  float slope_;
  float origin_;  // an integer: where 0 lies
  float rest_;    // what rounding it left of the offset
};

inline constexpr int kMostContenders = 1024;

// Whether a contender is kept.
enum class Keeping { kDropped, kUnknown, kKept };

// In shared memory, of which some devices give a block 99 KiB.
struct WeightHistogramMemory {
  union {
    BoundedList<kMostContenders> contenders;
    FindMemory find;  // of the definition, on the row or on the list
  };
  union {
    alignas(16) uint32_t bins[WeightBins::kBins + 4];  // the last is for what is in none
    TokenList list;                                    // for calls without bins, or after
                                                       // them
  };
  uint32_t largest[kMostWarps];  // order keys
  float mass[kMostWarps];
  double mass_of_blocks[kMostBlocks];
  float replaced[kMostWarps];  // the mass that patches took out of the sum
  double replaced_of_blocks[kMostBlocks];
};

// The memory that is free while a list is made of the row, and during ReadWeightHistogram.
__device__ inline MarkRoom RoomBesideList(WeightHistogramMemory& memory) {
  return {&memory.find, sizeof memory.find};
}
__device__ inline MarkRoom RoomBesideBins(WeightHistogramMemory& memory) {
  static_assert(sizeof memory.list > sizeof memory.bins);
  return {memory.bins + WeightBins::kBins + 4, sizeof memory.list - sizeof memory.bins};
}

// The sum of a warp's lanes, to where each warp has a place.
__device__ inline void ShareOfWarp(const Team& team, float value, float* of_warps) {
  value = Team::ReduceWarp(value, [](float a, float b) { return a + b; });
  if (team.lane() == 0) of_warps[team.thread() / kWarpSize] = value;
}

// After a barrier that follows ShareOfWarp: the sum of this block, by its last warp, to all blocks.
__device__ inline void ShareOfBlock(const Team& team, const float* of_warps, double* of_blocks) {
  const int warps = team.threads() / kWarpSize;
  if (team.thread() / kWarpSize != warps - 1) return;
  double sum = team.lane() < warps ? static_cast<double>(of_warps[team.lane()]) : 0.0;
  sum = Team::ReduceWarp(sum, [](double a, double b) { return a + b; });
  if (team.lane() < team.blocks()) *team.Of(team.lane(), of_blocks + team.rank()) = sum;
}

// After a Sync of the team that follows ShareOfBlock.
__device__ inline double SumOfTeam(const Team& team, const double* of_blocks) {
  double sum = 0.0;
#pragma unroll
  for (int r = 0; r < kMostBlocks; ++r) sum += r < team.blocks() ? of_blocks[r] : 0.0;
  return sum;
}

// The mass of a row, summed up in fp32 by threads. A patched row's sum had the mass in it that
// patches replace, and was rounded as such.
struct ReadMass {
  // True when patches leave no doubt, which holds for every row without them; false where their
  // doubt is a NaN. The caller checks whether the mass is finite.
  __device__ bool IsKnown() const { return doubt <= 0.25; }

  double mass;   // in the unit of the weights; not finite when a logit is NaN or +inf
  double doubt;  // what patches add to it, as a share of the mass
};
template <DType kDType, bool kPatched>
__device__ ReadMass MassOfTeam(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                               const WeightHistogramMemory& memory) {
  ReadMass read{SumOfTeam(team, memory.mass_of_blocks), 0.0};
  if constexpr (kPatched) {
    const int threads = team.threads() * team.blocks();
    const int addends = slice.vocab() / threads + 64 + 2 * (slice.Patches() / threads + 1);
    const double replaced = SumOfTeam(team, memory.replaced_of_blocks);
    const double doubt = 0x1p-24 * addends * (4.0 * replaced + 2.0 * fabs(read.mass));
    // Not known of a mass that is not positive, unless nothing was replaced either.
    read.doubt = doubt > 0.0 ? (read.mass > 0.0 ? doubt / read.mass : INFINITY) : doubt;
  }
  return read;
}

// Before ReadWeightHistogram, with a Sync between the two.
__device__ inline void Clear(const Team& team, WeightHistogramMemory& memory) {
  Clear(team, memory.contenders);
  uint4* bins = reinterpret_cast<uint4*>(memory.bins);
  for (int i = team.thread(); i < WeightBins::kBins / 4; i += team.threads()) bins[i] = {};
}

// kWeighs: compute sums and bins; kScreens: list contenders, else only those above all bins; the
// first block gets them. A Sync of the team makes them visible.
//
// sampled: a lower bound of the largest value, of a patched row: its largest value may be hidden by
// one that a patch takes away, so the list has all that are above the bound as well.
template <bool kWeighs, bool kScreens, DType kDType, bool kPatched>
__device__ void ReadWeightHistogram(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                                    FirstVectors& loaded, const WeightUnit& unit,
                                    const NoiseKey& key, float sampled,
                                    WeightHistogramMemory& memory) {
  using Tokens = Eight<kDType>;
  const WeightBins bins(unit);
  const semantics::Stream stream = semantics::GumbelStream(key);
  float largest = kPatched ? sampled : -INFINITY;
  float mass = 0.0f;
  if constexpr (kWeighs) slice.UnpatchFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    float weight[Tokens::kTokens];
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) weight[e] = unit.WeightOf(tokens.x[e]);
    bool has_any = false;
    if constexpr (kPatched) {
      has_any = tokens.Largest() > sampled;
    } else {
      largest = fmaxf(largest, tokens.Largest());
    }
    if constexpr (kWeighs) {
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) {
        mass += weight[e];
        atomicAdd(&memory.bins[bins.Of(tokens.x[e])], 1u);
      }
      mass = Again(mass);  // added up here: put off, it would keep the weights in memory
    }
    if constexpr (kScreens) {
      const semantics::Block noise = NoiseOfEight(tokens, KeyAgain(key), stream);
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) {
        has_any |= IsContender(FieldAsFloat(noise, e), weight[e]);
      }
      // A masked token can be a contender here, and the eight may be another warp's.
      if (has_any) has_any = slice.Has(tokens.first);
    } else {
      has_any |= bins.IsAbove(tokens.Largest());
    }
    if (has_any) Note(memory.contenders, tokens);
  });
  auto may_decide = [&](float x, int id) {
    if constexpr (kScreens) {
      const float field = FieldAsFloat(NoiseAround(id, key, stream), id % 8);
      return x != -INFINITY && IsContender(field, unit.WeightOf(x));
    } else {
      return bins.IsAbove(x);
    }
  };
  float replaced = 0.0f;
  slice.ForEachPatch(team, [&](float before, float x, int id) {
    largest = fmaxf(largest, x);
    if constexpr (kWeighs) {
      const float weight_before = unit.WeightOf(before);
      mass += unit.WeightOf(x);
      mass -= weight_before;
      replaced += weight_before;
      atomicAdd(&memory.bins[bins.Of(before)], ~0u);
      atomicAdd(&memory.bins[bins.Of(x)], 1u);
    }
    if (may_decide(x, id)) ListToken(*team.Of(0, &memory.contenders), x, id);
  });
  auto share_largest = [&] {
    const uint32_t of_warp = __reduce_max_sync(~0u, semantics::OrderKey(largest));
    if (team.lane() == 0) memory.largest[team.thread() / kWarpSize] = of_warp;
  };
  if constexpr (!kPatched) share_largest();
  ShareOfWarp(team, mass, memory.mass);
  if constexpr (kPatched && kWeighs) ShareOfWarp(team, replaced, memory.replaced);
  team.SyncBlock();
  ShareOfBlock(team, memory.mass, memory.mass_of_blocks);
  if constexpr (kPatched && kWeighs) {
    ShareOfBlock(team, memory.replaced, memory.replaced_of_blocks);
  }
  ListNoted(team, slice, memory.contenders, 0, [&](float x, int id) {
    if constexpr (kPatched) {
      if (x > sampled && !slice.IsPatched(id)) largest = fmaxf(largest, x);
      return x > sampled || may_decide(x, id);
    } else {
      return may_decide(x, id);
    }
  });
  if constexpr (kPatched) share_largest();
}

// How many contenders the first block has; negative: not all of them, or a logit is NaN or +inf.
__device__ inline int ContendersOf(const WeightHistogramMemory& memory) {
  return memory.contenders.IsComplete() ? static_cast<int>(memory.contenders.count) : -1;
}

// The sums of the team, after a Sync of it.
struct RowTotals {
  float max;  // of a patched row, if all contenders are listed
  ReadMass read;
};

template <DType kDType, bool kPatched>
__device__ RowTotals TotalsOf(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                              WeightHistogramMemory& memory) {
  const bool is_a_warp = team.lane() < team.threads() / kWarpSize;
  uint32_t largest = 0;
#pragma unroll
  for (int r = 0; r < kMostBlocks; ++r) {
    if (r >= team.blocks() || !is_a_warp) continue;
    largest = max(largest, *team.Of(r, memory.largest + team.lane()));
  }
  return {semantics::ValueOfKey(__reduce_max_sync(~0u, largest)), MassOfTeam(team, slice, memory)};
}

// The first block's bins get the counts of the team, a share of them by every block: neighbours at
// once, because other blocks are far. A Sync of the team makes them visible.
__device__ inline void SumBins(const Team& team, WeightHistogramMemory& memory) {
  if (team.blocks() == 1) return;
  const int share = WeightBins::kBins / team.blocks();
  for (int i = team.thread(); i < share; i += team.threads()) {
    uint32_t* bin = memory.bins + team.rank() * share + i;
    *team.Of(0, bin) = team.SumOverBlocks(bin);
  }
}

}  // namespace sluice::cuda
