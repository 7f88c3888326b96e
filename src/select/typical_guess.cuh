// Where typical sampling ends among the listed top of a row, from the read that lists it.
//
// The read adds up what the tokens below the list's threshold have of the mass and of the surprise,
// by approximate weights. The listed tokens are known one by one, so the mean surprise and the mass
// lie between two bounds each. semantics/typical.h keeps a token iff the tokens nearer to the mean
// hold less than the target: nearer tokens are an interval of the order around the mean, nearly
// always one that is listed, and then only a mass near the target leaves a token in doubt. Where
// one is, nothing is known, and typical_bound.cuh reads the row again.
#pragma once

#include "select/top_list.cuh"
#include "select/typical_bound.cuh"
#include "semantics/top_p.h"

namespace sluice::cuda {

// In shared memory, of every block.
struct MomentsMemory {
  float of_warps[4][kMostWarps];
  double of_blocks[4][kMostBlocks];
};

// Of the tokens below a threshold, added up by all threads while the row streams by.
template <bool kPatched>
class UnlistedMoments {
 public:
  static constexpr bool kAreAddedUp = true;
  // The mass, its sum with log-weights, and what patches took out of them.
  enum Sum { kMass, kMoment, kReplacedMass, kReplacedMoment };

  __device__ UnlistedMoments(MomentsMemory& memory, bool are_wanted)
      : memory_(memory), are_wanted_(are_wanted) {}

  // Log-weights are relative to the largest value of the first vectors.
  __device__ void Begin(const Team& team, const RowStart& start, float threshold) {
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

  // With a barrier of the block behind it, and a Sync behind ShareOfBlocks.
  __device__ void ShareOfWarps(const Team& team) const {
    if (!are_wanted_) return;
    const float sums[] = {mass_, moment_, replaced_mass_, replaced_moment_};
#pragma unroll
    for (int i = 0; i < kSums; ++i) ShareOfWarp(team, sums[i], memory_.of_warps[i]);
  }
  __device__ void ShareOfBlocks(const Team& team) const {
    if (!are_wanted_) return;
#pragma unroll
    for (int i = 0; i < kSums; ++i) ShareOfBlock(team, memory_.of_warps[i], memory_.of_blocks[i]);
  }

  __device__ const WeightUnit& unit() const { return unit_; }
  __device__ float threshold() const { return threshold_; }
  __device__ double operator()(const Team& team, Sum sum) const {
    return sum < kSums ? SumOfTeam(team, memory_.of_blocks[sum]) : 0.0;
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

// In shared memory of the first block: of sorted tokens.
struct TypicalTopMemory {
  static constexpr int kMostTokens = kMostRanked;

  uint64_t before[kMostTokens + 1];  // the mass before each
  int32_t surprises[kMostTokens];
};

// What unlisted tokens have, in units of semantics/weight.h, between bounds.
struct UnlistedBounds {
  bool are_known;
  double least_mass;
  double most_mass;
  double least_moment;  // mass times surprise
  double most_moment;
  double tokens;  // no more than that have weight
};

template <bool kPatched>
__device__ UnlistedBounds BoundsOf(const Team& team, const UnlistedMoments<kPatched>& moments,
                                   float max, int vocab, int patches, int listed, bool has_all) {
  using Moments = UnlistedMoments<kPatched>;
  // Log-weights of tokens that matter are known to 1e-5, roundings of both kinds and the
  // instruction of the power together: none of them is beyond 100.
  constexpr double kDoubt = 2e-5;
  const double mass = moments(team, Moments::kMass);
  const double moment = moments(team, Moments::kMoment);
  const double of_max = static_cast<double>(max) * static_cast<double>(moments.unit().scale) +
                        static_cast<double>(moments.unit().offset);
  const int threads = team.threads() * team.blocks();
  const double rounding = 0x1p-24 * (vocab / threads + 64 + 2 * (patches / threads + 1));
  const double mass_doubt =
      mass * kDoubt + rounding * (4.0 * moments(team, Moments::kReplacedMass) + 2.0 * fabs(mass));
  const double moment_doubt =
      fabs(moment) * kDoubt +
      rounding * (4.0 * moments(team, Moments::kReplacedMoment) + 2.0 * fabs(moment));
  const double unit = 0x1p40 * static_cast<double>(Exp2Approx(static_cast<float>(-of_max)));

  UnlistedBounds bounds;
  // The largest value is not below a sample's; false for a NaN.
  bounds.are_known = of_max > -1.0 && of_max < 60.0 && mass >= 0.0 && mass < 0x1p100;
  bounds.tokens = has_all ? 0.0 : vocab - listed;
  // Of a token without weight the approximate one is below a unit, which is what others are cut
  // off by.
  bounds.least_mass = fmax(unit * (mass - mass_doubt) - bounds.tokens, 0.0);
  bounds.most_mass = unit * (mass + mass_doubt);
  const double surprise = 4096.0 * unit * (of_max * mass - moment);
  const double doubt = 4096.0 * unit * (fabs(of_max) * mass_doubt + moment_doubt) +
                       0.6 * bounds.most_mass + TypicalMemory::kMostKey * bounds.tokens;
  bounds.least_moment = fmax(surprise - doubt, 0.0);
  bounds.most_moment = surprise + doubt;
  return bounds;
}

// As TypicalBound, of a row of which no more than TypicalTopMemory has room for is listed.
template <bool kPatched>
struct TypicalGuess {
  const UnlistedMoments<kPatched>& moments;
  TypicalTopMemory& memory;
  const Team& row_team;
  float p;
  int vocab;
  int patches;
  uint32_t threshold;
  bool has_all = false;

  // By the threads of a team that have a token each, sorted; of this thread's: x and its weight.
  template <class TeamOfTop>
  __device__ TypicalEnds EndsOf(const TeamOfTop& team, int size, float x, float max, float scale,
                                uint64_t weight) const {
    constexpr int32_t kWithoutWeight = TypicalMemory::kMostKey + 1;
    const int place = team.thread();
    const int32_t surprise =
        weight == 0
            ? kWithoutWeight
            : static_cast<int32_t>(semantics::Surprise(semantics::LogWeight(x, max, scale)));
    const int told = team.CountOfBlock(place < size && semantics::OrderKey(x) >= threshold);
    const auto [before, listed] = team.SumsOfBlock(weight);
    if (place < size) {
      memory.surprises[place] = surprise;
      memory.before[place] = before;
    }
    if (place == 0) memory.before[size] = listed;
    const uint64_t upper = weight >> 16;
    const uint64_t upper_sum = team.SumOfBlock(upper);
    const uint64_t surprise_sum = team.SumOfBlock(upper * static_cast<uint32_t>(surprise));
    const UnlistedBounds unlisted = BoundsOf(row_team, moments, max, vocab, patches, size, has_all);

    // The mean. Each weight there has its last 16 bits cut off, of a token that is not listed
    // between nothing and 1: at most all of its weight, and of those that have as much none has a
    // larger surprise than 24 octaves.
    constexpr double kMostCut = 24.0 * 4096.0;
    const double weights = static_cast<double>(upper_sum);
    const double surprises = static_cast<double>(surprise_sum);
    const double most_weights = weights + unlisted.most_mass * 0x1p-16 - unlisted.tokens;
    const double least_weights = weights + unlisted.least_mass * 0x1p-16 - unlisted.tokens;
    const double least_surprises =
        surprises + unlisted.least_moment * 0x1p-16 - kMostCut * unlisted.tokens;
    const double most_surprises = surprises + unlisted.most_moment * 0x1p-16;
    const double least_mean = fmax(least_surprises / most_weights - 1e-3, 0.0);
    const double most_mean = most_surprises / least_weights + 1e-3;
    const bool is_known =
        unlisted.are_known && least_weights > 0.0 && most_mean < TypicalMemory::kMostKey;
    if (!is_known) return {told, 0, 0, false};
    const int32_t low = static_cast<int32_t>(least_mean), high = static_cast<int32_t>(most_mean);

    const uint64_t least_rest = static_cast<uint64_t>(unlisted.least_mass);
    const uint64_t most_rest = static_cast<uint64_t>(unlisted.most_mass) + 1;
    const uint64_t least_target = ::max(semantics::TargetMass(p, listed + least_rest), uint64_t{1});
    const uint64_t most_target = ::max(semantics::TargetMass(p, listed + most_rest), uint64_t{1});
    // Of told tokens with surprises between two. Behind them some are listed, and some not.
    auto place_from = [&](int32_t least) {
      int first = 0, end = told;
#pragma unroll 1
      while (first < end) {
        const int middle = (first + end) / 2;
        if (memory.surprises[middle] < least) {
          first = middle + 1;
        } else {
          end = middle;
        }
      }
      return first;
    };
    auto mass_between = [&](int32_t above, int32_t below) -> uint64_t {
      const int first = place_from(above + 1), end = place_from(below);
      return first < end ? memory.before[end] - memory.before[first] : 0;
    };
    const int32_t of_threshold = static_cast<int32_t>(
        min(semantics::Surprise(semantics::LogWeight(semantics::ValueOfKey(threshold), max, scale)),
            int64_t{kWithoutWeight}));
    bool is_kept = true, is_dropped = false;
    if (place < told && weight != 0) {
      // Nearer to the mean than this token, whatever the mean is, and perhaps nearer.
      const uint64_t nearer = surprise <= low    ? mass_between(surprise, 2 * low - surprise)
                              : surprise >= high ? mass_between(2 * high - surprise, surprise)
                                                 : 0;
      const int32_t end = ::max(surprise, 2 * high - surprise);
      uint64_t most_nearer = mass_between(min(surprise, 2 * low - surprise), end);
      if (end > of_threshold) most_nearer += most_rest + listed - memory.before[told];
      is_kept = most_nearer < least_target;
      is_dropped = nearer >= most_target;
    }
    const bool is_certain = team.CountOfBlock(!is_kept && !is_dropped) == 0;
    const int begin = team.CountOfBlock(is_dropped && surprise < low);
    const int kept_end =
        team.CountOfBlock(place < told && weight != 0 && !(is_dropped && surprise >= low));
    return {told, begin, kept_end, is_certain};
  }
};

}  // namespace sluice::cuda
