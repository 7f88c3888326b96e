// The one logarithm of Sluice, to base 2: y = m * 2^k with m in [0.75, 1.5), u = m - 1, and
// log2(y) = fma(u, Q(u), k). The coefficients are the same in fp32 (noise) and fp64 (logprobs).
#pragma once

#include "semantics/host_device.h"

namespace sluice::semantics {

// Q(u) ~ log2(1 + u) / u on [-0.25, 0.5), Horner with fma.
template <typename Real>
SLUICE_HD inline Real Log2Quotient(Real u) {
  Real q = Real(-0x1.01bd1p-4);
  q = Fma(q, u, Real(0x1.3132d8p-3));
  q = Fma(q, u, Real(-0x1.84e022p-3));
  q = Fma(q, u, Real(0x1.ac8c92p-3));
  q = Fma(q, u, Real(-0x1.ebf2cap-3));
  q = Fma(q, u, Real(0x1.274d54p-2));
  q = Fma(q, u, Real(-0x1.715426p-2));
  q = Fma(q, u, Real(0x1.ec714p-2));
  q = Fma(q, u, Real(-0x1.715478p-1));
  return Fma(q, u, Real(0x1.715476p+0));
}

// y is positive and normal.
SLUICE_HD inline float Log2(float y) {
  const uint32_t bits = BitsOf(y);
  int k = static_cast<int>(bits >> 23) - 127;
  uint32_t exponent = 127u << 23;
  if ((bits & 0x7fffffu) >= 0x400000u) {  // a significand of 1.5 and more is halved
    exponent = 126u << 23;
    ++k;
  }
  const float u = FloatOf((bits & 0x7fffffu) | exponent) - 1.0f;
  return Fma(u, Log2Quotient(u), static_cast<float>(k));
}

SLUICE_HD inline double Log2(double y) {
  const uint64_t bits = BitsOf(y);
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  int k = static_cast<int>(bits >> 52) - 1023;
  uint64_t exponent = uint64_t{1023} << 52;
  if ((bits & kFraction) >= uint64_t{1} << 51) {
    exponent = uint64_t{1022} << 52;
    ++k;
  }
  const double u = DoubleOf((bits & kFraction) | exponent) - 1.0;
  return Fma(u, Log2Quotient(u), static_cast<double>(k));
}

}  // namespace sluice::semantics
