// Top-p on a row whose nucleus ends among many equal tokens, which no list and no band of values
// holds. A sample from all over the row guesses their value; one read adds up the mass above it and
// counts them, exactly, so whether the boundary lies there is certain, and which tie is the last
// one follows. If it does not, the next value is tried.
#pragma once

#include "backend/first_read.cuh"
#include "backend/mass_sum.cuh"
#include "select/nucleus.cuh"
#include "select/spread_sample.cuh"
#include "select/top_list.cuh"

namespace sluice::cuda {

// In shared memory, of every block.
struct PlateauMemory {
  // Of the first block, for all.
  uint32_t key;  // order key of the value; 0: none is guessed
  float max;     // of the sample
  float offset;  // of the unit of weights in which contenders are told
  int32_t last_at_lower;

  // Of this block.
  uint32_t ties_of_warps[kMostWarps];
  uint64_t mass;
  uint64_t mass_above;
  uint64_t counts;  // as PlateauSums
};

// What one read says of a value.
struct PlateauSums {
  // Bits of `counts`: of the tokens above the value, of its ties, of threads that met a token above
  // the maximum of the sample, or a NaN. No vocabulary has 2^24 tokens.
  static constexpr int kTies = 24;
  static constexpr int kStrangers = 48;

  __device__ int32_t CountAbove() const { return static_cast<int32_t>(counts & ((1u << 24) - 1)); }
  __device__ int32_t Ties() const {
    return static_cast<int32_t>(counts >> kTies & ((1u << 24) - 1));
  }
  __device__ bool HasStrangers() const { return counts >> kStrangers != 0; }

  uint64_t mass;
  uint64_t mass_above;
  uint64_t counts;
};

struct Plateau {
  bool is_certain = false;
  Cut cut;  // whose last id is in the PlateauMemory of the first block
  WeightUnit unit;
  float max;
};

// Where to look for the value.
enum class Look { kAtMass, kAbove, kBelow };

// By the first block. The sample is in the list's tokens from the first look on.
template <DType kDType, bool kPatched>
__device__ void GuessPlateau(const Team& block, const VectorSlice<kDType, kPatched>& slice,
                             const RowStart& start, Look look, TokenList& list,
                             PlateauMemory& plateau) {
  constexpr float kOctaves = 5.0f;  // of the floor below the mass: 32 contenders are expected
  const uint64_t(&tokens)[kListCapacity] = list.tokens;
  // The largest key below one, and the least above it: 0, none. Of values.
  auto next_below = [&](uint32_t key) {
    uint32_t next = 0;
#pragma unroll 1
    for (int i = block.thread(); i < kSampled; i += block.threads()) {
      const uint32_t other = static_cast<uint32_t>(tokens[i] >> 32);
      next = max(next, other < key ? other : 0);
    }
    return static_cast<uint32_t>(block.MaxOfBlock(next));
  };
  auto next_above = [&](uint32_t key) {
    uint32_t next = 0;  // inverted
#pragma unroll 1
    for (int i = block.thread(); i < kSampled; i += block.threads()) {
      const uint32_t other = static_cast<uint32_t>(tokens[i] >> 32);
      next = max(next, other > key ? ~other : 0);
    }
    next = static_cast<uint32_t>(block.MaxOfBlock(next));
    return next == 0 ? 0 : ~next;
  };
  if (look != Look::kAtMass) {
    const uint32_t key = look == Look::kBelow ? next_below(plateau.key) : next_above(plateau.key);
    if (block.thread() == 0) plateau.key = key;  // behind the barriers of the search
    return;
  }
  const float share = SampleRow(block, slice, list.tokens);
  block.SyncBlock();
  const uint32_t largest = next_below(~0u);
  const float scale = start.scales.filter;
  const float most = semantics::ValueOfKey(largest);
  auto mass_from = [&](uint32_t key) {
    float mass = 0.0f;
#pragma unroll 1
    for (int i = block.thread(); i < kSampled; i += block.threads()) {
      const uint32_t other = static_cast<uint32_t>(tokens[i] >> 32);
      if (other < key || other == 0) continue;
      mass += Exp2Approx((semantics::ValueOfKey(other) - most) * scale);
    }
    return block.ReduceBlock(static_cast<double>(mass), [](double a, double b) { return a + b; });
  };
  const double total = mass_from(0);
  const float p = start.params.top_p;
  const double target = static_cast<double>(p) * total;
  // From the largest key down, the first with which the mass reaches the target: of few values one
  // after the other, and the search is over.
  constexpr int kMostSteps = 8;
  uint32_t high = largest;
  uint32_t low = semantics::OrderKey(-INFINITY);
#pragma unroll 1
  for (int step = 0; step < kMostSteps && low < high; ++step) {
    if (mass_from(high) >= target) {
      low = high;
    } else {
      high = next_below(high);
    }
  }
#pragma unroll 1
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    if (mass_from(middle) >= target) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const float mass = static_cast<float>(total) / share;
  const float floor = most * scale + log2f(mass * p) - kOctaves;
  if (block.thread() == 0) {
    const bool is_known = fabsf(floor) < 4000.0f;  // false for a NaN
    plateau.key = is_known && low > semantics::OrderKey(-INFINITY) ? low : 0;
    plateau.max = most;
    plateau.offset = WeightUnit::kLogFields - floor;
  }
}

// kScreens: contenders of the draw are wanted too, as of FirstRead; the first block gets them.
template <bool kScreens, DType kDType, bool kPatched>
__device__ PlateauSums ReadPlateau(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                                   float value, float max, const WeightUnit& unit,
                                   const NoiseKey& key, FirstReadMemory& memory,
                                   PlateauMemory& plateau) {
  using Tokens = Eight<kDType>;
  const semantics::Stream stream = semantics::GumbelStream(key);
  MassSum all, above;
  uint32_t seen = 0, seen_above = 0, ties = 0;
  bool has_stranger = false;
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      const float x = tokens.x[e];
      const MassSum::Addend addend = MassSum::Of(x, max, unit.scale);
      all.Add(addend);
      if (x > value) {
        above.Add(addend);
        ++seen_above;
      }
      ties += x == value ? 1 : 0;
      has_stranger |= !(x <= max);
    }
    seen += Tokens::kTokens;
    if constexpr (kScreens) {
      const semantics::Block noise = NoiseOfEight(tokens, KeyAgain(key), stream);
      bool has_any = false;
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) {
        has_any |= IsContender(FieldAsFloat(noise, e), unit.WeightOf(tokens.x[e]));
      }
      // As in FirstRead.
      if (has_any && slice.Has(tokens.first)) Note(memory.contenders, tokens);
    }
  });
  const uint32_t ties_of_warp = __reduce_add_sync(~0u, ties);
  if (team.lane() == 0) plateau.ties_of_warps[team.thread() / kWarpSize] = ties_of_warp;
  uint64_t counts = seen_above + (uint64_t{ties} << PlateauSums::kTies);
  if (has_stranger) counts += uint64_t{1} << PlateauSums::kStrangers;
  const uint64_t mass = team.SumOfBlock(all.Total(seen));
  const uint64_t mass_above = team.SumOfBlock(above.Total(seen_above));
  counts = team.SumOfBlock(counts);
  if (team.thread() == 0) {
    plateau.mass = mass;
    plateau.mass_above = mass_above;
    plateau.counts = counts;
  }
  if constexpr (kScreens) {
    ListNoted(team, slice, memory.contenders, 0, [&](float x, int id) {
      const float field = FieldAsFloat(NoiseAround(id, key, stream), id % 8);
      return x != -INFINITY && IsContender(field, unit.WeightOf(x));
    });
  }
  team.Sync();
  auto sum = [&](uint64_t* of_block) {
    return team.ReduceBlocks(
        uint64_t{0}, [&](int other) { return *team.Of(other, of_block); }, Plus{});
  };
  return {sum(&plateau.mass), sum(&plateau.mass_above), sum(&plateau.counts)};
}

// The n-th of the ties, from 1 on, in the order of ids: by the block that has it, to the first one.
template <DType kDType, bool kPatched>
__device__ void TellTie(const Team& team, const VectorSlice<kDType, kPatched>& slice, float value,
                        int n, PlateauMemory& plateau) {
  auto ties_of = [&](int block) {
    return static_cast<int>(*team.Of(block, &plateau.counts) >> PlateauSums::kTies &
                            ((1u << 24) - 1));
  };
  for (int block = 0; block < team.rank(); ++block) n -= ties_of(block);
  if (n < 1 || n > ties_of(team.rank())) return;
  const int warps = team.threads() / kWarpSize;
  const uint32_t of_warp = team.lane() < warps ? plateau.ties_of_warps[team.lane()] : 0;
  const int through = static_cast<int>(team.SumThrough(of_warp));
  const int warp = __popc(__ballot_sync(~0u, through < n));
  n -= __shfl_sync(~0u, through - static_cast<int>(of_warp), warp);
  // All threads look into the stretch of that warp, a few neighbours each.
  const auto [first, end] = slice.StretchOf(team.rank() * warps + warp);
  const int share = (end - first + team.threads() - 1) / team.threads();
  const int mine = first + team.thread() * share;
  int ties = 0;
  for (int id = mine; id < min(mine + share, end); ++id) ties += slice.ValueOf(id) == value ? 1 : 0;
  const int before = static_cast<int>(team.SumBefore(static_cast<uint64_t>(ties)));
  if (before >= n || n > before + ties) return;
  n -= before;
  int id = mine;
  for (;; ++id) {
    if (slice.ValueOf(id) == value && --n == 0) break;
  }
  team.Of(0, &plateau)->last_at_lower = id;
}

// By all threads of the team, behind a Sync. The last Sync is behind what it writes.
template <bool kScreens, DType kDType, bool kPatched>
__device__ Plateau SelectPlateau(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                                 const RowStart& start, FirstReadMemory& memory,
                                 PlateauMemory& plateau) {
  constexpr int kMostReads = 3;
  const SelectParams& params = start.params;
  const float scale = start.scales.filter;
  Plateau found;
  if constexpr (kPatched) AwaitKernelBefore();  // as ForEachPatch does
  if (slice.Patches() > 0) return found;        // whose ties are not in the order of the stretches
  Look look = Look::kAtMass;
#pragma unroll 1
  for (int read = 0; read < kMostReads; ++read) {
    if (team.rank() == 0) GuessPlateau(team.Block(), slice, start, look, memory.list, plateau);
    if constexpr (kScreens) Clear(team, memory.contenders);
    team.Sync();
    const PlateauMemory& guess = *team.Of(0, &plateau);
    const uint32_t key = guess.key;
    if (key == 0) return found;
    const float value = semantics::ValueOfKey(key);
    const float max = guess.max;
    found.max = max;
    found.unit = {scale, guess.offset};
    const PlateauSums sums =
        ReadPlateau<kScreens>(team, slice, value, max, found.unit, start.key, memory, plateau);
    if (sums.HasStrangers()) return found;
    const uint64_t target = ::max(
        uint64_t{1}, semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, sums.mass),
                                                params.profile.top_p_boundary));
    const uint64_t weight = semantics::Weight(value, max, scale);
    const uint64_t ties = static_cast<uint64_t>(sums.Ties());
    const bool is_above = sums.mass_above >= target;
    if (!is_above && target <= sums.mass_above + ties * weight) {
      const int kept = params.profile.ties == Ties::kAll
                           ? sums.Ties()
                           : static_cast<int>(semantics::TopPTiesKept(sums.mass_above, weight,
                                                                      sums.Ties(), target));
      TellTie(team, slice, value, kept, plateau);
      found.is_certain = true;
      found.cut.lower = value;
      found.cut.ties_kept = kept;
      found.cut.count = sums.CountAbove() + kept;
      team.Sync();
      return found;
    }
    look = is_above ? Look::kAbove : Look::kBelow;
    team.Sync();  // all have read the sums
  }
  return found;
}

}  // namespace sluice::cuda
