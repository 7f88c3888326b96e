// Powers, logarithms and angles in fp64 by fixed operations, because those of C libraries differ in
// their last bits from one version or processor to the next. Rounded to fp32 they are right but for
// rare halfway cases (tests/model/rotary_test.cc).
#pragma once

#include <cmath>
#include <numbers>

namespace sluice::model {

// x is positive and normal: x = m 2^k with m in [sqrt(1/2), sqrt(2)), and 2 artanh((m-1)/(m+1)).
inline double Log2Exactly(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int n = 23; n >= 1; n -= 2) sum = sum * s2 + 1.0 / n;  // the next term is below 2^-64
  return exponent + 2 * s * sum * std::numbers::log2e;
}

// 2^x by Taylor's series of e^y with |y| <= ln 2 / 2.
inline double Exp2Exactly(double x) {
  const double whole = std::nearbyint(x);
  const double y = (x - whole) * std::numbers::ln2;
  double sum = 0;
  for (int n = 16; n >= 1; --n) sum = (sum + 1) * y / n;  // the next term is below 2^-70
  return std::ldexp(sum + 1, static_cast<int>(whole));
}

struct Angle {
  double cosine;
  double sine;
};

// Of |x| < 2^24 radians.
inline Angle AngleOf(double x) {
  constexpr double kHalfPiHigh =
      0x1.921fb54400000p+0;  // n * this is exact for n < 2^22, and off by 2^-30 at most beyond
  constexpr double kHalfPiLow = 0x1.0b4611a626331p-34;
  const double n = std::nearbyint(x * (2 / std::numbers::pi));
  const double r = (x - n * kHalfPiHigh) - n * kHalfPiLow, r2 = r * r;
  double sine = 0, cosine = 0;
  for (int k = 17; k >= 3; k -= 2) sine = (1 + sine) * -r2 / (k * (k - 1));
  for (int k = 18; k >= 2; k -= 2) cosine = (1 + cosine) * -r2 / (k * (k - 1));
  sine = (1 + sine) * r;
  cosine = 1 + cosine;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace sluice::model
