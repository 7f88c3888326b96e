// Where typical sampling ends on a row with a listed top: the mean surprise of the whole row, and a
// key that separates the listed tokens which semantics/filters/typical.h keeps from those that it
// drops.
//
// A surprise is a whole number below 2^18. One read of the row, after the list, sums what the mean
// is made of and the mass; the tokens within eight octaves of the largest, or as far as the list
// goes, which are few, are counted into bins of 64 surprises by their mass. Around the mean, whole
// bins bound the mass of the keys up to any one from both sides, which leaves 64 keys or fewer for
// the last one, K. Where no listed token has one of them, the list treats them alike; where all
// tokens up to there are listed, the list decides which is K. Else another read takes the tokens at
// the ends alone, and has the mass of each key. (Where tokens outside the bins matter the range is
// wide: then keys share a slot, and more reads separate those of one.)
#pragma once

#include "cuda/long_mass_sum.cuh"
#include "cuda/token_list.cuh"
#include "semantics/filters/typical.h"

namespace sluice::cuda {

// For a row without typical sampling, or one with rules that go another way.
struct NoTypical {
  static constexpr bool kSortsWhole = false;  // a list that is not pruned before
};

// Among sorted tokens: how many of them have a known surprise, how many of those are dropped from
// the top, and where the kept ones end.
struct TypicalEnds {
  int known;
  int begin;
  int end;
  bool is_known;
};

struct TypicalBound {
  static constexpr bool kSortsWhole = false;

  int32_t mean = -1;  // negative: not known
  int32_t key = 0;
  uint32_t threshold = 0;  // order key, of the list: tokens that reach it have a known surprise
  bool has_all = false;    // they are the support of the row

  // By the threads of a team that have a token each, sorted; of this thread's: x and its weight.
  template <class TeamOfTop>
  __device__ TypicalEnds EndsOf(const TeamOfTop& team, int size, float x, float max, float scale,
                                uint64_t weight) const {
    const int place = team.thread();
    const int64_t surprise = semantics::Surprise(semantics::LogWeight(x, max, scale));
    const int known = team.CountOfBlock(place < size && semantics::OrderKey(x) >= threshold);
    const int begin = team.CountOfBlock(place < known && surprise < mean - key);
    const int end = team.CountOfBlock(place < known && weight != 0 && surprise <= mean + key);
    return {known, begin, end, true};
  }
};

// The sums that give the mean, and the mass.
struct TypicalSums {
  uint64_t surprise = 0;
  uint64_t weights = 0;
  uint64_t mass = 0;
};

// In shared memory of every block.
struct TypicalMemory {
  static constexpr int kSurprisesOfBin = 64;
  static constexpr int32_t kMostKey = 40 << 12;  // beyond there is no weight
  static constexpr int kOfThread = 4;            // bins that are loaded at once: a vector
  static constexpr int kBins = 1024;

  // 32 bits can be added atomically at speed.
  alignas(16) uint32_t low[kBins];
  alignas(16) uint32_t high[kBins];
  uint64_t before[kBins + 1];  // the mass of the team's bins before each
  TypicalSums of_warp[kMostWarps];
  TypicalSums of_block;
  int32_t slot;
  int32_t key;  // of the first block

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
    static_assert(kBins % kOfThread == 0 && kBins <= kOfThread * 512,
                  "blocks have 512 threads or more");
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
  // The sums of the team, from those of threads. With a Sync inside.
  __device__ TypicalSums SumsOfTeam(const Team& team, const TypicalSums& mine) {
    auto sum_of_warp = [&](const TypicalSums& sums) {
      return TypicalSums{Team::ReduceWarp(sums.surprise, Plus{}),
                         Team::ReduceWarp(sums.weights, Plus{}),
                         Team::ReduceWarp(sums.mass, Plus{})};
    };
    const TypicalSums warp = sum_of_warp(mine);
    if (team.lane() == 0) of_warp[team.thread() / kWarpSize] = warp;
    team.SyncBlock();
    if (team.thread() < kWarpSize) {
      const bool has_warp = team.lane() < team.threads() / kWarpSize;
      const TypicalSums block = sum_of_warp(has_warp ? of_warp[team.lane()] : TypicalSums{});
      if (team.lane() == 0) of_block = block;
    }
    team.Sync();
    return sum_of_warp(team.lane() < team.blocks() ? *team.Of(team.lane(), &of_block)
                                                   : TypicalSums{});
  }
};

// The least key from `low` to `high` that holds(key); `high` does, and all above the least. By all
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

// The mass of the keys up to any one, between two bounds, from the bins.
class TypicalMass {
 public:
  __device__ TypicalMass(const uint64_t* before, int bins, uint64_t total, int32_t mean)
      : before_(before), bins_(bins), total_(total), mean_(mean) {}

  // The bins that the keys up to one fill: all of the tokens in them count.
  __device__ int FirstFull(int32_t key) const {
    return min((max(mean_ - key, 0) + kOfBin - 1) / kOfBin, bins_);
  }
  __device__ int EndFull(int32_t key) const { return min((mean_ + key + 1) / kOfBin, bins_); }
  __device__ uint64_t InFull(int32_t key) const {
    const int first = FirstFull(key), end = EndFull(key);
    return first < end ? before_[end] - before_[first] : 0;
  }

  __device__ uint64_t Least(int32_t key) const {
    const bool has_the_rest = mean_ + key >= TypicalMemory::kMostKey && mean_ <= key;
    return has_the_rest ? total_ : InFull(key);
  }
  __device__ uint64_t Most(int32_t key) const {
    const int last = (mean_ + key) / kOfBin;
    const int first = min(max(mean_ - key, 0) / kOfBin, bins_);
    return (last < bins_ ? before_[last + 1] : total_) - before_[first];
  }

 private:
  static constexpr int32_t kOfBin = TypicalMemory::kSurprisesOfBin;

  const uint64_t* before_;
  int bins_;
  uint64_t total_;
  int32_t mean_;
};

// The last key from `least` to `most`, where all tokens up to it are listed, and there are tokens:
// a warp for each key. By one block.
__device__ inline int32_t KeyFromList(const Team& block, TypicalMemory& memory,
                                      const TokenList& list, int size, float max, float scale,
                                      int32_t mean, uint64_t target, int32_t least, int32_t most) {
  if (block.thread() == 0) memory.key = most;
  block.SyncBlock();
  const int warps = block.threads() / kWarpSize;
#pragma unroll 1
  for (int32_t key = least + block.thread() / kWarpSize; key < most; key += warps) {
    uint64_t mass = 0;
#pragma unroll 1
    for (int i = block.lane(); i < size; i += kWarpSize) {
      const float t = semantics::LogWeight(ValueOf(list.tokens[i]), max, scale);
      const uint64_t weight = semantics::WeightOf(t);
      if (weight != 0 && semantics::TypicalKey(t, mean) <= key) mass += weight;
    }
    if (Team::ReduceWarp(mass, Plus{}) < target) continue;
    if (block.lane() == 0) atomicMin(&memory.key, key);
    break;
  }
  block.SyncBlock();
  return memory.key;
}

// for_each(visit) calls visit(x) for the values of the row that are this thread's. By all threads
// of the team, after a Sync that follows the list; what the first block gets counts.
template <typename ForEach>
__device__ TypicalBound BoundTypical(const Team& team, TypicalMemory& memory, TokenList& mine,
                                     ForEach for_each, float scale, float p) {
  constexpr int kOfBin = TypicalMemory::kSurprisesOfBin;
  TokenList& list = *team.Of(0, &mine);
  const int size = static_cast<int>(list.count);
  const uint32_t threshold = list.threshold;
  if (size == 0 || size > kListCapacity || list.is_spoilt != 0) return {};
  // A token for each thread, mostly: the first block goes on with its list before others are done.
  const uint32_t key_of_mine =
      team.thread() < size ? static_cast<uint32_t>(list.tokens[team.thread()] >> 32) : 0;
  uint32_t largest = key_of_mine;
#pragma unroll 1
  for (int i = team.thread() + team.threads(); i < size; i += team.threads()) {
    largest = ::max(largest, static_cast<uint32_t>(list.tokens[i] >> 32));
  }
  memory.Clear(team);
  const float max = semantics::ValueOfKey(static_cast<uint32_t>(team.MaxOfBlock(largest)));

  // visit(t, surprise, the weight by MassSum) for all tokens; without weight t is -41.
  auto for_each_surprise = [&](auto visit) {
    constexpr float kMagic = 0x1.8p23f;
    for_each([&](float x) {
      float t = semantics::LogWeight(x, max, scale);
      t = t >= -40.0f ? t : -41.0f;
      const float shifted = __fmaf_rn(t, -4096.0f, kMagic);  // an integer in its bits
      visit(t, static_cast<int32_t>(__float_as_uint(shifted) - __float_as_uint(kMagic)), x);
    });
  };
  auto log_weight_of = [&](uint32_t key) {
    return semantics::LogWeight(semantics::ValueOfKey(key), max, scale);
  };
  // A token outside the list has this surprise or a larger one. Bins go on a little beyond the
  // list, as far as there are few tokens.
  const int64_t end_of_list = semantics::Surprise(log_weight_of(threshold));
  constexpr int kBins = TypicalMemory::kBins;
  const int bins_of_list = static_cast<int>(min(end_of_list, int64_t{kOfBin * kBins}) / kOfBin) + 2;
  const int bins = min(::max(bins_of_list, kBins / 2), kBins);
  TypicalSums sums;
  LongMassSum mass;
  for_each_surprise([&](float, int32_t surprise, float x) {
    const MassSum::Addend addend = MassSum::Of(x, max, scale);
    mass.Add(addend);
    const uint64_t weight = addend.Weight();
    const auto upper = static_cast<uint32_t>(weight >> 16);
    sums.surprise += uint64_t{upper} * static_cast<uint32_t>(surprise);
    sums.weights += upper;
    if (surprise < bins * kOfBin) memory.Add(surprise / kOfBin, weight);
  });
  sums.mass = mass.Total();
  sums = memory.SumsOfTeam(team, sums);
  const uint64_t binned = memory.ForEachSum(
      team, [&](int bin, uint64_t before, uint64_t) { memory.before[bin] = before; });
  if (team.thread() == 0) memory.before[kBins] = binned;
  team.SyncBlock();
  team.ArriveStarted();  // a thread that awaits it can rely on all having read the bins

  const auto mean = static_cast<int32_t>(sums.surprise / sums.weights);
  const uint64_t target = ::max(semantics::TargetMass(p, sums.mass), uint64_t{1});
  const TypicalMass bounds(memory.before, bins, sums.mass, mean);
  constexpr int32_t kMostKey = TypicalMemory::kMostKey;
  int32_t least = LeastKey(0, kMostKey, [&](int32_t key) { return bounds.Most(key) >= target; });
  int32_t most =
      LeastKey(least, kMostKey, [&](int32_t key) { return bounds.Least(key) >= target; });

  if (mean + most < end_of_list) {
    if (team.rank() == 0) {
      least = KeyFromList(team.Block(), memory, mine, size, max, scale, mean, target, least, most);
    }
    team.AwaitStarted();
    return {mean, least, threshold};
  }
  bool is_open = false;  // whether the last key decides of this thread's token
  if (key_of_mine >= threshold) {
    const int64_t key = semantics::TypicalKey(log_weight_of(key_of_mine), mean);
    is_open = key > least && key <= most;
  }
  const bool goes_on = __syncthreads_or(is_open || size > team.threads()) != 0;
  team.AwaitStarted();
  if (!goes_on) return {mean, least, threshold};
#pragma unroll 1
  for (;;) {
    int shift = 0;
    while ((most - least) >> shift >= TypicalMemory::kBins) ++shift;
    memory.Clear(team);
    team.SyncBlock();
    const int first = bounds.FirstFull(least), end = bounds.EndFull(least);
    const uint64_t inside = bounds.InFull(least);
    for_each_surprise([&](float t, int32_t surprise, float) {
      const int32_t key = abs(surprise - mean);
      const int bin = surprise / kOfBin;
      if (t < -40.0f || key > most || (bin >= first && bin < end)) return;
      memory.Add((::max(key, least) - least) >> shift, semantics::WeightOf(t));
    });
    team.Sync();
    memory.ForEachSum(team, [&](int slot, uint64_t before, uint64_t of_slot) {
      if (inside + before < target || slot == 0) {
        if (inside + before + of_slot >= target) memory.slot = slot;
      }
    });
    team.Sync();
    least += memory.slot << shift;
    if (shift == 0) return {mean, least, threshold};
    most = min(most, least + (1 << shift) - 1);
  }
}

}  // namespace sluice::cuda
