// Where typical sampling ends among the listed top of a row, from the read that lists it.
//
// The read adds up what the tokens below the list's threshold have of the mass and of the surprise,
// by approximate weights. The listed tokens are known one by one, so the mean surprise and the mass
// lie between two bounds each. semantics/filters/typical.h keeps a token iff the tokens nearer to
// the mean hold less than the target: nearer tokens are an interval of the order around the mean,
// nearly always one that is listed, and then only a mass near the target leaves a token in doubt.
// Where one is, nothing is known, and typical_bound.cuh reads the row again.
#pragma once

#include "select/cuda/top_list.cuh"
#include "select/cuda/typical_bound.cuh"
#include "select/typical_mean.h"
#include "semantics/filters/top_p.h"

namespace sluice::cuda {

// In shared memory, of every block.
struct MomentsMemory {
  float of_warps[4][kMostWarps];
  float of_blocks[4][kMostBlocks];
};

// The moments of the tokens below a threshold, added up by all threads while the row streams by.
template <bool kPatched>
class UnlistedMoments {
 public:
  static constexpr bool kAreAddedUp = true;
  // The mass, its sum with log-weights, and what patches took out of them.
  enum Sum { kMass, kMoment, kReplacedMass, kReplacedMoment };

  __device__ UnlistedMoments(MomentsMemory& memory, bool are_wanted)
      : memory_(memory), are_wanted_(are_wanted) {}

  // Log-weights are relative to the largest value of the first vectors.
  __device__ void Begin(const Team& team, const RowPrologue& start, float threshold) {
    if (!are_wanted_) return;
    const float scale = start.scales.filter;
    unit_ = {scale, -LargestOfFirst(team, start) * scale};
    threshold_ = threshold;
  }
  template <DType kDType>
  __device__ void See(const Eight<kDType>& tokens) {
    if (!are_wanted_) return;
#pragma unroll
    for (const float x : tokens.x) {
      const Addend addend(*this, x);
      mass_ += addend.weight;
      moment_ = __fmaf_rn(addend.weight, addend.log_weight, moment_);
    }
  }
  // A patch: x in place of what was seen.
  __device__ void Replace(float before, float x) {
    if (!are_wanted_) return;
    const Addend seen(*this, before), added(*this, x);
    mass_ = mass_ - seen.weight + added.weight;
    moment_ = moment_ - seen.weight * seen.log_weight + added.weight * added.log_weight;
    replaced_mass_ += seen.weight;
    replaced_moment_ -= seen.weight * seen.log_weight;
  }

  // A barrier of the block must follow, and a Sync after ShareOfBlocks.
  __device__ void ShareOfWarps(const Team& team) const {
    if (!are_wanted_) return;
    const float sums[] = {mass_, moment_, replaced_mass_, replaced_moment_};
#pragma unroll
    for (int i = 0; i < kSums; ++i) ShareOfWarp(team, sums[i], memory_.of_warps[i]);
  }
  __device__ void ShareOfBlocks(const Team& team) const {
    if (!are_wanted_) return;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (team.thread() / kWarpSize != i) continue;  // a warp for each
      const float of_lane =
          team.lane() < team.threads() / kWarpSize ? memory_.of_warps[i][team.lane()] : 0.0f;
      const float sum = Team::ReduceWarp(of_lane, Plus{});
      if (team.lane() == 0) *team.Of(0, memory_.of_blocks[i] + team.rank()) = sum;
    }
  }

  __device__ const WeightUnit& unit() const { return unit_; }
  __device__ MomentsMemory& memory() const { return memory_; }
  __device__ float threshold() const { return threshold_; }
  __device__ float operator()(const Team& team, Sum sum) const {
    if (sum >= kSums) return 0.0f;
    float all = 0.0f;
#pragma unroll
    for (int r = 0; r < kMostBlocks; ++r) all += r < team.blocks() ? memory_.of_blocks[sum][r] : 0;
    return all;
  }

 private:
  static constexpr int kSums = kPatched ? 4 : 2;

  // Nothing, for a token that is listed or masked.
  struct Addend {
    float log_weight;
    float weight;

    __device__ Addend(const UnlistedMoments& moments, float x) {
      constexpr float kNothing = -200.0f;
      const WeightUnit& unit = moments.unit_;
      const float y = __fmaf_rn(x, unit.scale, unit.offset);
      log_weight = fmaxf(x < moments.threshold_ ? y : kNothing, kNothing);
      weight = Exp2Approx(log_weight);
    }
  };

  MomentsMemory& memory_;
  bool are_wanted_;
  WeightUnit unit_ = {};
  float threshold_ = 0.0f;
  float mass_ = 0.0f;
  float moment_ = 0.0f;
  float replaced_mass_ = 0.0f;
  float replaced_moment_ = 0.0f;
};

// When a list is longer than a block has threads, the first tokens stay listed, as many as the
// block has threads, and the others, which follow them, count as not listed. Tokens that reach the
// threshold are listed: as before, or among the first.
struct ShortTop {
  int size;
  uint32_t threshold;

  // Additions to a sum of the unlisted: of a thread's tokens, of its warp, of all warps.
  static constexpr int kAddends = kListCapacity / 512 + 1 + 5 + kMostWarps;
};

// By the first block, after ShareOfBlocks. The list itself is as it was, in another order. Not
// inline, and without references to what would be in registers: it is seldom needed.
__device__ __noinline__ inline ShortTop ShortenTop(const Team block, TokenList& list, int size,
                                                   int needed, MomentsMemory& moments,
                                                   const WeightUnit unit) {
  constexpr int kKeys = (kListCapacity + 511) / 512;  // blocks have 512 threads or more
  uint64_t mine[kKeys];
  uint32_t keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int place = block.thread() + i * block.threads();
    mine[i] = place < size ? list.tokens[place] : 0;
    keys[i] = static_cast<uint32_t>(mine[i] >> 32);
  }
  if (block.thread() == 0) {
    list.least = ~0u;
    list.most = list.pruned = 0;
  }
  block.SyncBlock();
  const uint32_t least = max(1u, KeyOfRank(block, list, keys, needed, block.threads()));
  block.SyncBlock();
  if (block.thread() == 0) list.most = static_cast<uint32_t>(size);
  block.SyncBlock();
  float mass = 0.0f, moment = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (mine[i] == 0) continue;
    if (keys[i] >= least) {
      list.tokens[atomicAdd(&list.pruned, 1u)] = mine[i];
    } else {
      list.tokens[atomicSub(&list.most, 1u) - 1] = mine[i];
      const float log_weight = __fmaf_rn(ValueOf(mine[i]), unit.scale, unit.offset);
      const float weight = Exp2Approx(log_weight);
      mass += weight;
      moment = __fmaf_rn(weight, log_weight, moment);
    }
  }
  ShareOfWarp(block, mass, moments.of_warps[0]);
  ShareOfWarp(block, moment, moments.of_warps[1]);
  block.SyncBlock();
  if (block.thread() < 2) {
    float& sum = moments.of_blocks[block.thread()][0];
    for (int w = 0; w < block.threads() / kWarpSize; ++w) {
      sum += moments.of_warps[block.thread()][w];
    }
  }
  block.SyncBlock();
  return {static_cast<int>(list.pruned), max(least, list.threshold)};
}

// In shared memory of the first block: of sorted tokens.
struct TypicalTopMemory {
  static constexpr int kMostTokens = 1024;  // a token a thread

  uint64_t before[kMostTokens + 1];  // the mass before each
  int32_t surprises[kMostTokens];
};

template <bool kPatched>
__device__ UnlistedSums SumsOf(const Team& team, const UnlistedMoments<kPatched>& moments,
                               float max, int vocab, int patches, int listed, bool has_all,
                               bool is_shortened) {
  using Moments = UnlistedMoments<kPatched>;
  const int threads = team.threads() * team.blocks();
  const float of_max = __fmaf_rn(max, moments.unit().scale, moments.unit().offset);
  return {.mass = moments(team, Moments::kMass),
          .moment = moments(team, Moments::kMoment),
          .replaced_mass = moments(team, Moments::kReplacedMass),
          .replaced_moment = moments(team, Moments::kReplacedMoment),
          .addends = vocab / threads + 64 + 2 * (patches / threads + 1) +
                     (is_shortened ? ShortTop::kAddends : 0),
          .of_max = of_max,
          .of_unit = Exp2Approx(-of_max),
          .tokens = has_all ? 0.0f : static_cast<float>(vocab - listed)};
}

// As TypicalBound, of a list that is sorted as a whole. What it runs is seldom in the caches of
// instructions, so it is short.
template <bool kPatched>
struct TypicalGuess {
  static constexpr bool kSortsWhole = true;  // its tokens stay where they are for a second reader

  const UnlistedMoments<kPatched>& moments;
  TypicalTopMemory& memory;
  const Team& row_team;
  float p;
  int vocab;
  int patches;
  uint32_t threshold;
  bool is_shortened;
  bool has_all = false;

  // By the threads of a team that have a token each, sorted; of this thread's: x and its weight.
  template <class TeamOfTop>
  __device__ TypicalEnds EndsOf(const TeamOfTop& team, int size, float x, float max, float scale,
                                uint64_t weight) const {
    constexpr int32_t kWithoutWeight = TypicalMemory::kMostKey + 1;
    const int place = team.thread();
    auto surprise_of = [&](float value) {
      const float t = semantics::LogWeight(value, max, scale);
      return t >= -40.0f ? static_cast<int32_t>(semantics::Surprise(t)) : kWithoutWeight;
    };
    const int32_t surprise = surprise_of(x);
    const int32_t of_threshold = surprise_of(semantics::ValueOfKey(threshold));
    const int known = team.CountOfBlock(place < size && semantics::OrderKey(x) >= threshold);
    const auto [before, listed] = team.SumsOfBlock(weight);
    if (place < size) {
      memory.surprises[place] = surprise;
      memory.before[place] = before;
    }
    if (place == 0) memory.before[size] = listed;
    const uint64_t upper = weight >> 16;
    const uint64_t upper_sum = team.SumOfBlock(upper);
    const uint64_t surprise_sum = team.SumOfBlock(upper * static_cast<uint32_t>(surprise));
    const UnlistedBounds unlisted =
        BoundsOf(SumsOf(row_team, moments, max, vocab, patches, size, has_all, is_shortened));
    const MeanBounds mean = MeanOf(unlisted, upper_sum, surprise_sum);
    if (!mean.are_known) return {known, 0, 0, false};

    const uint64_t least_rest = static_cast<uint64_t>(unlisted.least_mass);
    const uint64_t most_rest = static_cast<uint64_t>(unlisted.most_mass) + 1;
    const uint64_t least_target = ::max(semantics::TargetMass(p, listed + least_rest), uint64_t{1});
    const uint64_t most_target = ::max(semantics::TargetMass(p, listed + most_rest), uint64_t{1});

    // The first places from these surprises on, of tokens with a known surprise.
    const NearerTokens nearer = NearerThan(surprise, mean);
    const int32_t least[] = {nearer.sure.from, nearer.sure.end, nearer.perhaps.from,
                             nearer.perhaps.end};
    int first[4] = {};
#pragma unroll 1
    for (int step = 1 << (31 - __clz(known | 1)); step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int next = first[i] + step;
        if (next <= known && memory.surprises[next - 1] < least[i]) first[i] = next;
      }
    }
    bool is_kept = true, is_dropped = false;
    if (place < known && weight != 0) {
      auto mass_between = [&](int begin, int end) -> uint64_t {
        return begin < end ? memory.before[end] - memory.before[begin] : 0;
      };
      uint64_t nearest = mass_between(first[2], first[3]);
      // Some of the tokens after those are listed, and some not.
      if (nearer.perhaps.end > of_threshold) nearest += most_rest + listed - memory.before[known];
      is_kept = nearest < least_target;
      is_dropped = mass_between(first[0], first[1]) >= most_target;
    }
    const bool is_certain = team.CountOfBlock(!is_kept && !is_dropped) == 0;
    const int begin = team.CountOfBlock(is_dropped && surprise < mean.low);
    const int end =
        team.CountOfBlock(place < known && weight != 0 && !(is_dropped && surprise >= mean.low));
    return {known, begin, end, is_certain};
  }
};

}  // namespace sluice::cuda
