// min-p: keep a token iff W >= floor(min_p * 2^40), that is, iff it is at least min_p times as
// likely as the most likely token. At least one is kept: after typical, which may drop the most
// likely token, none might be.
#pragma once

#include "semantics/filters/floor.h"

namespace sluice::semantics {

// W >= M from this value on: W never rises as x falls.
SLUICE_HD inline float MinPThreshold(float min_p, float m, float scale) {
  const uint64_t least = Fixed40(min_p);
  return LeastValue(kLowestValue, m, [=](float x) { return Weight(x, m, scale) >= least; });
}

struct MinPFloor {
  static constexpr int kSums = 0;
  float min_p;

  SLUICE_HD float From(const FloorSums&, float max, float scale) const {
    return MinPThreshold(min_p, max, scale);
  }
};

}  // namespace sluice::semantics
