// top-k: exactly min(k, kept) tokens, the first in the total order; k = 0 and k = -1 keep all.
#pragma once

#include "semantics/interval.h"
#include "sluice/profile.hpp"

namespace sluice::semantics {

SLUICE_HD inline Interval TopK(SortedRow row, Interval kept, int32_t k, const Profile& profile) {
  if (k <= 0 || k >= kept.end - kept.begin) return kept;
  const int64_t end = kept.begin + k;
  return {kept.begin, profile.ties == Ties::kAll ? EndWithTies(row, end, kept.end) : end};
}

}  // namespace sluice::semantics
