// min-p: keep a token iff W >= floor(min_p * 2^40), that is, iff it is at least min_p times as
// likely as the most likely token. At least one is kept: behind typical, which may drop the most
// likely token, none might be.
#pragma once

#include "semantics/interval.h"

namespace sluice::semantics {

SLUICE_HD inline Interval MinP(SortedRow row, Interval kept, float min_p, float scale) {
  const uint64_t least = Fixed40(min_p);
  while (kept.end > kept.begin + 1 &&
         Weight(row.tokens[kept.end - 1].x, row.Max(), scale) < least) {
    --kept.end;
  }
  return kept;
}

// The same rule as a threshold: W >= M from this value on. W never rises as x falls.
SLUICE_HD inline float MinPThreshold(float min_p, float m, float scale) {
  const uint64_t least = Fixed40(min_p);
  return LeastValue(kLowestValue, m, [=](float x) { return Weight(x, m, scale) >= least; });
}

}  // namespace sluice::semantics
