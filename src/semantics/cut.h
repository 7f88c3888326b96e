// Between an interval of the sorted row and a Cut, and from a Cut back to membership.
#pragma once

#include "semantics/interval.h"
#include "sluice/cut.hpp"

namespace sluice::semantics {

SLUICE_HD inline Cut CutOfStatus(RowStatus status) {
  Cut cut;
  cut.status = status;
  return cut;
}

// The boundaries are the values of the first and the last kept token. The upper one stays +inf when
// the first token of the row is kept. A zero boundary is written as +0.
SLUICE_HD inline Cut CutOfInterval(SortedRow row, Interval kept) {
  auto first_of_ties = [row](int64_t i) {
    while (i > 0 && row.tokens[i - 1].x == row.tokens[i].x) --i;
    return i;
  };
  Cut cut;
  cut.count = static_cast<int32_t>(kept.end - kept.begin);
  const int64_t last = kept.end - 1;
  cut.lower = row.tokens[last].x + 0.0f;
  cut.ties_kept = static_cast<int32_t>(kept.end - first_of_ties(last));
  if (kept.begin > 0) {
    cut.upper = row.tokens[kept.begin].x + 0.0f;
    cut.ties_dropped = static_cast<int32_t>(kept.begin - first_of_ties(kept.begin));
  }
  return cut;
}

// Decides for one token after the other, in ascending order of id, whether it is kept. Ties are
// counted as they pass, so the caller must pass every token of the row.
class CutWalk {
 public:
  SLUICE_HD explicit CutWalk(const Cut& cut) : cut_(cut) {}

  SLUICE_HD bool Keeps(float x) {
    bool kept = x <= cut_.upper && x >= cut_.lower;
    if (x == cut_.upper) kept = upper_ties_++ >= cut_.ties_dropped && kept;
    if (x == cut_.lower) kept = lower_ties_++ < cut_.ties_kept && kept;
    return kept;
  }

 private:
  Cut cut_;
  int32_t upper_ties_ = 0;
  int32_t lower_ties_ = 0;
};

}  // namespace sluice::semantics
