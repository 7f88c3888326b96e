// The dense head's dot product: 128 lanes, lane j takes elements j, j + 128, ... by fma in order;
// then a halving tree 64, 32, ... 1; then the bias. The same bits on every backend, for any batch
// and any subset of rows, because the order is fixed and wide enough for SIMD and warps alike.
#pragma once

#include "semantics/widen.h"

namespace sluice::semantics {

inline constexpr int kDotLanes = 128;

// a and b have the same size.
SLUICE_HD inline float Dot(const Row& a, const Row& b) {
  float lane[kDotLanes] = {};
  for (int64_t i = 0; i < a.size; ++i) {
    float& sum = lane[i % kDotLanes];
    sum = Fma(a[i], b[i], sum);
  }
  for (int half = kDotLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return lane[0];
}

}  // namespace sluice::semantics
