// The weight of a token: its probability against the most likely one, as an integer.
//
// W = floor(P(f) * 2^(n + 40)) with t = fl(fl(x - m) * c), n = floor(t), f = fl(t - n), c =
// fl(log2(e) / T), P(f) ~ 2^f. W is 2^40 at x == m and 0 when t < -40. It never rises as x falls,
// for every T, and its relative error is at most 1.7e-7 for t > -12 (tests/semantics/weight_test.cc
// checks both over all 1,109,655,552 values of t). Sums of W are exact in 64 bits for up to 2^23
// tokens, so no order of summation can change a result.
#pragma once

#include "semantics/host_device.h"

namespace sluice::semantics {

inline constexpr uint64_t kFullWeight = uint64_t{1} << 40;

// log2(e) / T, once a row. T > 0.
SLUICE_HD inline float TemperatureScale(float temperature) { return 0x1.715476p+0f / temperature; }

// P(f) ~ 2^f on [0, 1], Horner with fma.
SLUICE_HD inline float Exp2Fraction(float f) {
  float r = 0x1.e974fap-10f;
  r = Fma(r, f, 0x1.277856p-7f);
  r = Fma(r, f, 0x1.c91ce6p-5f);
  r = Fma(r, f, 0x1.ebdb56p-3f);
  r = Fma(r, f, 0x1.62e4bap-1f);
  return Fma(r, f, 0x1p+0f);
}

// t <= 0: the logarithm to base 2 of the token's probability against the maximum's.
SLUICE_HD inline float LogWeight(float x, float m, float scale) {
  const float d = x - m;
  return d * scale;
}

SLUICE_HD inline uint64_t WeightOf(float t) {
  if (!(t >= -40.0f)) return 0;
  const float n = floorf(t);
  const float f = t - n;  // in [0, 1]: it may round up to 1
  const uint32_t r = BitsOf(Exp2Fraction(f));
  // r = significand * 2^(exponent - 23) with r in [1, 2]; shift it to units of 2^-40.
  const uint64_t significand = (r & 0x7fffffu) | 0x800000u;
  const int exponent = static_cast<int>(r >> 23) - 127;
  const int shift = exponent - 23 + static_cast<int>(n) + 40;
  return shift >= 0 ? significand << shift : significand >> -shift;
}

SLUICE_HD inline uint64_t Weight(float x, float m, float scale) {
  return WeightOf(LogWeight(x, m, scale));
}

}  // namespace sluice::semantics
