// Where typical sampling ends: the mean surprise of a whole row and the key K of
// semantics/typical.h, exact, in two reads behind the one that found the maximum.
//
// A surprise is a whole number below 2^18. The first read sums what the mean is made of, and the
// mass of each bin of 128 surprises. Around the mean, whole bins bound the mass of the keys up to
// any one from both sides, which leaves a range of keys for K, of two or three bins; the second
// read looks at the tokens at its ends alone, and has the mass of each key. (With gaps of many bins
// in the row the range is wide: then keys share a slot, and another read tells those of one apart.)
#pragma once

#include "backend/long_mass_sum.cuh"
#include "semantics/typical.h"

namespace sluice::cuda {

struct TypicalBound {
  int32_t mean;  // negative: not known
  int32_t key;

  // Where the surprise is too small, and where it is too large or there is no weight.
  __device__ bool DropsFromTheTop(float t) const { return semantics::Surprise(t) < mean - key; }
  __device__ bool DropsFromTheBottom(float t) const {
    return semantics::WeightOf(t) == 0 || semantics::Surprise(t) > mean + key;
  }
};

// In shared memory of every block.
struct TypicalMemory {
  static constexpr int kSurprisesOfBin = 128;
  static constexpr int32_t kMostKey = 40 << 12;  // beyond there is no weight
  static constexpr int kOfThread = 4;            // bins that are loaded at once: a vector
  static constexpr int kBins = (kMostKey / kSurprisesOfBin / kOfThread + 1) * kOfThread;

  // 32 bits can be added atomically at speed.
  alignas(16) uint32_t low[kBins];
  alignas(16) uint32_t high[kBins];
  uint64_t before[kBins + 1];  // the mass of the team's bins before each
  uint64_t weights;
  uint64_t surprise;
  uint32_t largest;  // of the first block: order key of the maximum; 0: not known
  int32_t slot;

  __device__ void Clear(const Team& team) {
    for (int i = team.thread(); i < kBins; i += team.threads()) low[i] = high[i] = 0;
  }
  __device__ void Add(int slot_of_token, uint64_t weight) {
    const uint32_t word = static_cast<uint32_t>(weight);
    const uint32_t carry = atomicAdd(low + slot_of_token, word) > ~word ? 1 : 0;
    const uint32_t above = static_cast<uint32_t>(weight >> 32) + carry;
    if (above != 0) atomicAdd(high + slot_of_token, above);
  }
  // visit(slot, the mass of the team's slots before it, its mass), a thread some neighbours.
  // Returns the mass of all.
  template <typename Visit>
  __device__ uint64_t ForEachSum(const Team& team, Visit visit) {
    static_assert(kBins <= kOfThread * 512, "blocks have 512 threads or more");
    const int first = team.thread() * kOfThread;
    const bool has_bins = first < kBins;
    uint64_t mass[kOfThread] = {};
#pragma unroll
    for (int r = 0; r < kMostBlocks; ++r) {
      if (r >= team.blocks() || !has_bins) continue;
      const uint4 lows = *reinterpret_cast<const uint4*>(team.Of(r, low + first));
      const uint4 highs = *reinterpret_cast<const uint4*>(team.Of(r, high + first));
      mass[0] += lows.x + (uint64_t{highs.x} << 32);
      mass[1] += lows.y + (uint64_t{highs.y} << 32);
      mass[2] += lows.z + (uint64_t{highs.z} << 32);
      mass[3] += lows.w + (uint64_t{highs.w} << 32);
    }
    auto [sum, all] = team.SumsOfBlock(mass[0] + mass[1] + mass[2] + mass[3]);
    if (!has_bins) return all;
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      visit(first + i, sum, mass[i]);
      sum += mass[i];
    }
    return all;
  }
};

// The least key from `low` to `high` that holds(key); `high` does, and all behind the least. By all
// lanes of a warp.
template <typename Holds>
__device__ int32_t LeastKey(int32_t low, int32_t high, Holds holds) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 1
  while (low < high) {
    const int32_t step = (high - low + kWarpSize - 1) / kWarpSize;
    const uint32_t those = __ballot_sync(~0u, holds(min(low + lane * step, high)));
    const int first = __ffs(static_cast<int>(those)) - 1;  // -1: none
    if (first >= 0) high = min(low + first * step, high);
    if (first != 0) low += (first < 0 ? kWarpSize - 1 : first - 1) * step + 1;
  }
  return low;
}

// for_each(visit) calls visit(x) for the values of the row that are this thread's. By all threads
// of the team, which get the same answer; the row has no status. In front of it there is a Sync of
// the team, and it ends with one.
template <typename ForEach>
__device__ TypicalBound BoundTypical(const Team& team, TypicalMemory& memory, ForEach for_each,
                                     float max, float scale, float p) {
  constexpr int kBins = TypicalMemory::kBins;
  constexpr int kOfBin = TypicalMemory::kSurprisesOfBin;
  // visit(t, surprise) for the tokens that have some weight.
  auto for_each_weighty = [&](auto visit) {
    for_each([&](float x) {
      const float t = semantics::LogWeight(x, max, scale);
      if (t >= -40.0f) visit(t, static_cast<int32_t>(rintf(t * -4096.0f)));
    });
  };
  memory.Clear(team);
  team.SyncBlock();
  uint64_t surprise = 0, weights = 0;
  for_each_weighty([&](float t, int32_t of_token) {
    const uint64_t weight = semantics::WeightOf(t);
    surprise += (weight >> 16) * static_cast<uint32_t>(of_token);
    weights += weight >> 16;
    memory.Add(of_token / kOfBin, weight);
  });
  surprise = team.SumOfBlock(surprise);
  weights = team.SumOfBlock(weights);
  if (team.thread() == 0) {
    memory.surprise = surprise;
    memory.weights = weights;
  }
  team.Sync();
  surprise = team.ReduceBlocks(
      uint64_t{0}, [&](int other) { return *team.Of(other, &memory.surprise); }, Plus{});
  weights = team.ReduceBlocks(
      uint64_t{0}, [&](int other) { return *team.Of(other, &memory.weights); }, Plus{});
  const uint64_t total = memory.ForEachSum(
      team, [&](int bin, uint64_t before, uint64_t) { memory.before[bin] = before; });
  if (team.thread() == 0) memory.before[kBins] = total;
  team.Sync();

  const auto mean = static_cast<int32_t>(surprise / weights);
  const uint64_t target = ::max(semantics::TargetMass(p, total), uint64_t{1});
  // The bins that the keys up to one fill, and those that they touch.
  auto first_full = [&](int32_t key) { return (::max(mean - key, 0) + kOfBin - 1) / kOfBin; };
  auto end_full = [&](int32_t key) {
    const int32_t end = mean + key + 1;
    return end > TypicalMemory::kMostKey ? kBins : end / kOfBin;
  };
  auto least_mass = [&](int32_t key) {
    const int first = first_full(key), end = end_full(key);
    return first < end ? memory.before[end] - memory.before[first] : 0;
  };
  auto most_mass = [&](int32_t key) {
    const int last = min((mean + key) / kOfBin, kBins - 1);
    return memory.before[last + 1] - memory.before[::max(mean - key, 0) / kOfBin];
  };
  constexpr int32_t kMostKey = TypicalMemory::kMostKey;
  int32_t least = LeastKey(0, kMostKey, [&](int32_t key) { return most_mass(key) >= target; });
  int32_t most = LeastKey(least, kMostKey, [&](int32_t key) { return least_mass(key) >= target; });
#pragma unroll 1
  for (;;) {
    int shift = 0;
    while ((most - least) >> shift >= kBins) ++shift;
    memory.Clear(team);
    team.SyncBlock();
    const int first = first_full(least), end = end_full(least);
    const uint64_t inside = least_mass(least);
    for_each_weighty([&](float t, int32_t of_token) {
      const int32_t key = abs(of_token - mean);
      const int bin = of_token / kOfBin;
      if (key > most || (bin >= first && bin < end)) return;
      memory.Add((::max(key, least) - least) >> shift, semantics::WeightOf(t));
    });
    team.Sync();
    memory.ForEachSum(team, [&](int slot, uint64_t before, uint64_t mass) {
      if (inside + before < target || slot == 0) {
        if (inside + before + mass >= target) memory.slot = slot;
      }
    });
    team.Sync();
    least += memory.slot << shift;
    if (shift == 0) return {mean, least};
    most = min(most, least + (1 << shift) - 1);
  }
}

}  // namespace sluice::cuda
