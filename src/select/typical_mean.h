// What the listed top of a row, known token by token, and two sums of the tokens below it say of
// typical sampling: bounds of the mean surprise and of the mass, and with them the tokens that are
// nearer to the mean than a listed one. The scalar part of typical_guess.cuh, for the host as well
// (tests/select/typical_mean_test.cc).
#pragma once

#include "semantics/host_device.h"

namespace sluice::cuda {

// The sums of the tokens below the list, by weights 2^y with y = fl(x * scale + offset).
struct UnlistedSums {
  float mass;           // of the weights,
  float moment;         // and of the weights times y
  float replaced_mass;  // what patches took out of both, without signs
  float replaced_moment;
  int addends;    // of a partial sum
  float of_max;   // y of the row's largest value
  float of_unit;  // 2^-of_max, to a millionth
  float tokens;   // no more than that have weight
};

// In units of semantics/weight.h.
struct UnlistedBounds {
  bool are_known;
  float least_mass;
  float most_mass;
  float least_moment;  // mass times surprise
  float most_moment;
  float tokens;
};

SLUICE_HD inline UnlistedBounds BoundsOf(const UnlistedSums& sums) {
  // Weights of tokens that matter are known to 7e-6: y below 100, the largest value's and the
  // surprise are rounded, and the instruction of the power is. What is computed here is rounded by
  // less than 1e-6.
  constexpr float kDoubt = 2e-5f;
  constexpr float kMostSurprise = 40.0f * 4096.0f;
  const float rounding = 0x1p-24f * static_cast<float>(sums.addends);
  auto doubt_of = [&](float sum, float replaced) {
    return sum * kDoubt + rounding * (4.0f * replaced + 2.0f * sum);
  };
  const float mass_doubt = doubt_of(sums.mass, sums.replaced_mass);
  const float moment_doubt = doubt_of(fabsf(sums.moment), sums.replaced_moment);
  const float of_one = 0x1p40f * sums.of_unit;

  UnlistedBounds bounds;
  // The largest value is not below a sample's. False for a NaN, and one in a doubt is one in the
  // sum as well.
  bounds.are_known =
      sums.of_max > -1.0f && sums.of_max < 40.0f && sums.mass >= 0.0f && sums.mass < 0x1p60f;
  bounds.tokens = sums.tokens;
  // The approximate weight of a token without weight is below a unit, which is what others are cut
  // off by.
  bounds.least_mass = fmaxf(of_one * (sums.mass - mass_doubt) - sums.tokens, 0.0f);
  bounds.most_mass = of_one * (sums.mass + mass_doubt);
  const float surprise = 4096.0f * of_one * (sums.of_max * sums.mass - sums.moment);
  const float doubt = 4096.0f * of_one * (fabsf(sums.of_max) * mass_doubt + moment_doubt) +
                      0.6f * bounds.most_mass + kMostSurprise * sums.tokens;
  bounds.least_moment = fmaxf(surprise - doubt, 0.0f);
  bounds.most_moment = surprise + doubt;
  return bounds;
}

// semantics::TypicalMoments::mean is one of low to high.
struct MeanBounds {
  bool are_known;
  int32_t low;
  int32_t high;
};

// upper_sum: of the listed weights without their last 16 bits; surprise_sum: times the surprises.
SLUICE_HD inline MeanBounds MeanOf(const UnlistedBounds& unlisted, uint64_t upper_sum,
                                   uint64_t surprise_sum) {
  // Each weight has its last 16 bits cut off, of a token that is not listed between nothing and 1:
  // at most all of its weight, and of those that have as much none has a larger surprise than 24
  // octaves. Quotients here are known to a millionth.
  constexpr float kMostCut = 24.0f * 4096.0f;
  constexpr float kMore = 1.0f + 0x1p-19f, kLess = 1.0f - 0x1p-19f;
  const float weights = static_cast<float>(upper_sum);
  const float surprises = static_cast<float>(surprise_sum);
  const float most_weights = weights + unlisted.most_mass * 0x1p-16f - unlisted.tokens;
  const float least_weights = weights + unlisted.least_mass * 0x1p-16f - unlisted.tokens;
  const float least_surprises =
      surprises + unlisted.least_moment * 0x1p-16f - kMostCut * unlisted.tokens;
  const float most_surprises = surprises + unlisted.most_moment * 0x1p-16f;
  const float least_mean = fmaxf(least_surprises * kLess / most_weights - 0.1f, 0.0f);
  const float most_mean = most_surprises * kMore / least_weights + 0.1f;
  if (!unlisted.are_known || !(least_weights > unlisted.tokens) || !(most_mean < kMostCut)) {
    return {false, 0, 0};
  }
  return {true, static_cast<int32_t>(least_mean), static_cast<int32_t>(most_mean)};
}

// The tokens that are nearer to the mean than one with this surprise have surprises from one to
// below the other: for certain those of `sure`, perhaps those of `perhaps`.
struct NearerTokens {
  struct Range {
    int32_t from;
    int32_t end;
  };
  Range sure;
  Range perhaps;
};

SLUICE_HD inline NearerTokens NearerThan(int32_t surprise, const MeanBounds& mean) {
  // They lie between the token and its mirror image, for each of the two bounds.
  const int32_t at_low = 2 * mean.low - surprise, at_high = 2 * mean.high - surprise;
  NearerTokens nearer;
  nearer.sure = surprise <= mean.low    ? NearerTokens::Range{surprise + 1, at_low}
                : surprise >= mean.high ? NearerTokens::Range{at_high + 1, surprise}
                                        : NearerTokens::Range{surprise, surprise};
  nearer.perhaps = {(surprise < at_low ? surprise : at_low) + 1,
                    surprise > at_high ? surprise : at_high};
  return nearer;
}

}  // namespace sluice::cuda
