// The data of the selection rules: a row sorted by the total order, and the interval of it that
// is still kept.
//
// Every rule of stages 12 to 15 tests a quantity that is monotone in the value, so each moves an
// end of the interval and none makes a hole. (typical tests |a - h|, and a is monotone in x.)
#pragma once

#include "semantics/order.h"
#include "semantics/weight.h"

namespace sluice::semantics {

// The tokens of a row that are not masked (-inf), by the total order.
struct SortedRow {
  const Token* tokens;
  int64_t size;  // at least 1

  // m, one value for all rules of the row: the largest value after the adjustments.
  SLUICE_HD float Max() const { return tokens[0].x; }
};

struct Interval {
  int64_t begin;
  int64_t end;
};

SLUICE_HD inline uint64_t MassOf(SortedRow row, Interval kept, float scale) {
  uint64_t mass = 0;
  for (int64_t i = kept.begin; i < kept.end; ++i) mass += Weight(row.tokens[i].x, row.Max(), scale);
  return mass;
}

// The end moved back over tokens equal to the last kept one, but not past `limit`.
SLUICE_HD inline int64_t EndWithTies(SortedRow row, int64_t end, int64_t limit) {
  while (end < limit && row.tokens[end].x == row.tokens[end - 1].x) ++end;
  return end;
}

}  // namespace sluice::semantics
