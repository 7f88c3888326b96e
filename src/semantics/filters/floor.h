// Rules of the simplest kind: they keep the tokens from a value on, the floor, and at least one.
//
// Such a rule is a struct, here called `rule`; every backend can apply it:
//   rule.kSums                     how many sums over the kept tokens it needs, up to 3
//   rule.TermsOf(x, max, scale)    what a token adds to them (not needed when kSums is 0)
//   rule.From(sums, max, scale)    the floor
// It stands before XTC, and not between top-k and top-p.
//
// max is the largest value of the row and scale the one of Weight. Terms and floor use x, max and
// scale alone, so a floor means one thing on a sorted row, an unsorted list and vocabulary shards.
#pragma once

#include "semantics/interval.h"

namespace sluice::semantics {

struct FloorSums {
  uint64_t at[3] = {0, 0, 0};

  SLUICE_HD void Add(const FloorSums& terms, uint64_t tokens) {
    for (int i = 0; i < 3; ++i) at[i] += tokens * terms.at[i];
  }
};

template <class Floor>
SLUICE_HD inline float FloorOf(SortedRow row, Interval kept, const Floor& rule, float scale) {
  FloorSums sums;
  if constexpr (Floor::kSums > 0) {
    for (int64_t i = kept.begin; i < kept.end; ++i) {
      sums.Add(rule.TermsOf(row.tokens[i].x, row.Max(), scale), 1);
    }
  }
  return rule.From(sums, row.Max(), scale);
}

SLUICE_HD inline Interval KeepFromFloor(SortedRow row, Interval kept, float floor) {
  while (kept.end > kept.begin + 1 && row.tokens[kept.end - 1].x < floor) --kept.end;
  return kept;
}

}  // namespace sluice::semantics
