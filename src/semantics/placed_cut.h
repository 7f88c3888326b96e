// A Cut with ids in place of its tie counts. Keeps tests any token of the row by itself; CutWalk
// needs all of them in order.
#pragma once

#include <limits>

#include "semantics/widen.h"
#include "sluice/cut.hpp"

namespace sluice::semantics {

struct PlacedCut {
  float upper;
  float lower;
  int32_t last_dropped;  // of the ties at the upper boundary; -1: none
  int32_t last_kept;     // of the ties at the lower boundary; -1: none

  SLUICE_HD bool Keeps(float x, int32_t id) const {
    return x <= upper && x >= lower && (x != upper || id > last_dropped) &&
           (x != lower || id <= last_kept);
  }
};

// The id for a count that is larger than the row's number of ties: all of them.
inline constexpr int32_t kAfterAllTies = std::numeric_limits<int32_t>::max();

SLUICE_HD inline PlacedCut PlaceCut(const Row& row, const Cut& cut) {
  PlacedCut placed{cut.upper, cut.lower, cut.ties_dropped > 0 ? kAfterAllTies : -1,
                   cut.ties_kept > 0 ? kAfterAllTies : -1};
  int32_t upper_ties = 0;
  int32_t lower_ties = 0;
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    const int32_t id = static_cast<int32_t>(i);
    if (x == cut.upper && ++upper_ties == cut.ties_dropped) placed.last_dropped = id;
    if (x == cut.lower && ++lower_ties == cut.ties_kept) placed.last_kept = id;
  }
  return placed;
}

}  // namespace sluice::semantics
