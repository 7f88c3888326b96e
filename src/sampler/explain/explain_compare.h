// The numbers that a stage compared, for its report.
#pragma once

#include <cmath>
#include <limits>

#include "semantics/select.h"
#include "sluice/explain.hpp"

namespace sluice {

// Numbers that a double has exactly.
inline void Compare(StageReport& report, Comparison comparison, double quantity, double limit) {
  report.comparison = comparison;
  report.quantity = quantity;
  report.limit = limit;
}

// Shares that were compared as integers: two that round to the same double are distinguished by
// moving the first.
inline void CompareShares(StageReport& report, Comparison comparison, double quantity, double limit,
                          bool holds) {
  if (quantity == limit && Holds(comparison, quantity, limit) != holds) {
    const bool keeps_below = comparison == Comparison::kBelow || comparison == Comparison::kAtMost;
    const double towards = std::numeric_limits<double>::infinity();
    quantity = std::nextafter(limit, keeps_below == holds ? -towards : towards);
  }
  Compare(report, comparison, quantity, limit);
}

inline double Ratio(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace sluice
