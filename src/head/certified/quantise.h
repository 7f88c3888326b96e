// From a row of weights to its codes. Any rounding here is safe: what the certificates use is the
// error that is left, by its law (dither) or by its norm (strict).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "head/certified/bound.h"
#include "semantics/draw/philox.h"

namespace sluice {

// The least bf16 s with 7 s >= largest: never smaller, so that every code fits. 0 for a group of
// zeros.
inline uint16_t ScaleFor(double largest) {
  if (largest == 0.0) return 0;
  const double exact = std::max(largest / 7.0, kLeastScale);
  float scale = static_cast<float>(exact);
  if (7.0 * static_cast<double>(scale) < largest) scale = std::nextafterf(scale, INFINITY);
  return static_cast<uint16_t>((semantics::BitsOf(scale) + 0xffffu) >> 16);
}

// u_j, one of 2^22 values in the middle of as many intervals that share [-1/2, 1/2], exact in fp32.
inline float DitherOf(uint64_t seed, int64_t j) {
  const uint32_t n =
      semantics::Philox(seed, static_cast<uint32_t>(j), 0, 0x64697468u, 0).word[0] >> 10;
  return static_cast<float>(2 * static_cast<int32_t>(n) + 1 - (1 << 22)) * 0x1p-23f;
}

// q of w ~ s (q + u). |w / s| <= 7 and |u| < 1/2, so |q| <= 7.
inline int DitheredCode(double weight, double scale, double dither) {
  return scale == 0.0 ? 0 : static_cast<int>(std::nearbyint(weight / scale - dither));
}

// w ~ s (q + low / 16), |q| <= 7, -8 <= low <= 7.
struct TwoCodes {
  int high;
  int low;
};
inline TwoCodes StrictCodes(double weight, double scale) {
  if (scale == 0.0) return {0, 0};
  const int fine = static_cast<int>(std::nearbyint(16.0 * weight / scale));  // |fine| <= 112
  const int high = (fine + 8 + 16 * 8) / 16 - 8;                             // floor
  return {high, fine - 16 * high};
}

// A norm of at most 2^20 squares that were summed in fp64, rounded up to fp32.
SLUICE_HD inline float NormUp(double sum_of_squares) {
  return RoundedUp(std::sqrt(sum_of_squares) * (1.0 + 1e-9));
}

}  // namespace sluice
