// XTC: with some probability, drop all but the last of the tokens above a threshold, so that a
// likely but not the likeliest continuation is taken.
//
// s = number of kept tokens with W * 2^32 >= thr32 * Z, thr32 = floor(threshold * 2^32); if the
// coin falls and s >= 2, the first s - 1 in the total order are dropped. thr32 is at least 1, so
// that a token of weight 0 is never what remains.
#pragma once

#include "semantics/interval.h"

namespace sluice::semantics {

// The least W * 2^32 that counts, in a set of this mass.
SLUICE_HD inline uint128_t XtcLeast(float threshold, uint64_t mass) {
  const uint64_t threshold32 = Fixed32(threshold);
  return static_cast<uint128_t>(threshold32 == 0 ? 1 : threshold32) * mass;
}

SLUICE_HD inline bool XtcCounts(uint64_t weight, uint128_t least) {
  return (static_cast<uint128_t>(weight) << 32) >= least;
}

SLUICE_HD inline Interval Xtc(SortedRow row, Interval kept, float threshold, float scale) {
  const uint128_t least = XtcLeast(threshold, MassOf(row, kept, scale));
  int64_t above = kept.begin;
  while (above < kept.end && XtcCounts(Weight(row.tokens[above].x, row.Max(), scale), least)) {
    ++above;
  }
  if (above - kept.begin >= 2) kept.begin = above - 1;
  return kept;
}

}  // namespace sluice::semantics
