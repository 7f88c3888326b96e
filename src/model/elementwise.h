// The functions of one number that a forward pass needs, as every backend computes them: fixed
// polynomials and single roundings, so that the same tokens come out everywhere.
#pragma once

#include "semantics/host_device.h"

namespace sluice::model {

using semantics::Fma;

inline constexpr float kExpLow = -87.0f;  // below, e^x counts as 0: it is less than 2^-125
inline constexpr float kExpHigh = 88.3f;  // above, as +inf
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62e400p-1f;  // n * this is exact for |n| < 2^9
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;

// e^r on [-ln 2 / 2, ln 2 / 2]: Taylor's polynomial; its next term is below 2^-27 of the sum.
inline constexpr float kExpTaylor[] = {0x1.a01a02p-13f,
                                       0x1.6c16c2p-10f,
                                       0x1.111112p-7f,
                                       0x1.555556p-5f,
                                       0x1.555556p-3f,
                                       0.5f,
                                       1.0f,
                                       1.0f};

// e^x, within 2 units in the last place between the bounds (tests/model/elementwise_test.cc). NaN
// stays NaN.
inline float Exp(float x) {
  if (x < kExpLow) return 0.0f;
  if (x > kExpHigh) return semantics::Infinity();
  if (semantics::IsNan(x)) return x;
  const float n = floorf(Fma(x, kLog2E, 0.5f));
  const float r = Fma(n, -kLn2Low, Fma(n, -kLn2High, x));
  float p = 0.0f;
  for (const float coefficient : kExpTaylor) p = Fma(p, r, coefficient);
  return p * semantics::FloatOf(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

// GELU with tanh, as Gemma has it: 0.5 (1 + tanh u) is 1 / (1 + e^-2u).
inline constexpr float kGeluCube = 0.044715f;
inline constexpr float kGeluScale = -0x1.988454p+0f;  // -2 sqrt(2 / pi)

inline float GeluTanh(float x) {
  const float cube = x * x * x;
  const float u = Fma(kGeluCube, cube, x);
  return x / (1.0f + Exp(u * kGeluScale));
}

// cap * tanh(x / cap), in [-cap, cap]: large |x| round to the cap itself. cap > 0.
inline float SoftCap(float x, float cap) {
  const float z = x / cap;
  const float e = Exp(-2.0f * std::fabs(z));
  return std::copysign(cap * ((1.0f - e) / (1.0f + e)), z);
}

}  // namespace sluice::model
