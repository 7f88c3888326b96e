// top-n-sigma: keep the tokens within n_sigma standard deviations of the largest value.
//
// In fixed point: e_i = min(rint((m - x_i) * 2^12), 2^20) over the n kept tokens, S1 = sum e, S2 =
// sum e^2, N = rint(n_sigma * 2^8); keep iff e_i <= floor(isqrt(N^2 (n S2 - S1^2)) / (n 2^8)).
// Temperature plays no part. The widest product is below 2^24 * 2^86 = 2^110.
#pragma once

#include "semantics/filters/floor.h"

namespace sluice::semantics {

SLUICE_HD inline uint64_t SigmaDistance(float x, float m) {
  const float d = m - x;
  const float scaled = d * 0x1p12f;  // exact, or +inf
  return scaled >= 0x1p20f ? uint64_t{1} << 20 : static_cast<uint64_t>(rintf(scaled));
}

// The largest r with r * r <= value.
SLUICE_HD inline uint64_t IntegerSqrt(uint128_t value) {
  uint64_t root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t trial = root | (uint64_t{1} << bit);
    if (static_cast<uint128_t>(trial) * trial <= value) root = trial;
  }
  return root;
}

// The largest e that is kept, from the three sums.
SLUICE_HD inline uint64_t SigmaBound(uint64_t n, uint64_t sum, uint64_t sum_of_squares,
                                     float n_sigma) {
  const uint64_t sigmas = static_cast<uint64_t>(rintf(n_sigma * 256.0f));
  const uint128_t variance = static_cast<uint128_t>(n) * sum_of_squares -
                             static_cast<uint128_t>(sum) * sum;  // n^2 times the variance
  return IntegerSqrt(variance * sigmas * sigmas) / (n << 8);
}

// e <= bound from this value on.
SLUICE_HD inline float SigmaThreshold(uint64_t bound, float m) {
  return LeastValue(kLowestValue, m, [=](float x) { return SigmaDistance(x, m) <= bound; });
}

// The bound of the tokens in `kept`.
SLUICE_HD inline uint64_t SigmaBoundOf(SortedRow row, Interval kept, float n_sigma) {
  uint64_t sum = 0;
  uint64_t sum_of_squares = 0;
  for (int64_t i = kept.begin; i < kept.end; ++i) {
    const uint64_t e = SigmaDistance(row.tokens[i].x, row.Max());
    sum += e;
    sum_of_squares += e * e;
  }
  const uint64_t n = static_cast<uint64_t>(kept.end - kept.begin);
  return SigmaBound(n, sum, sum_of_squares, n_sigma);
}

struct TopNSigmaFloor {
  static constexpr int kSums = 3;
  float n_sigma;

  SLUICE_HD FloorSums TermsOf(float x, float max, float) const {
    const uint64_t e = SigmaDistance(x, max);
    return {{1, e, e * e}};
  }
  SLUICE_HD float From(const FloorSums& sums, float max, float) const {
    return SigmaThreshold(SigmaBound(sums.at[0], sums.at[1], sums.at[2], n_sigma), max);
  }
};

}  // namespace sluice::semantics
