// Status of a row after the adjustments, and its maximum. A masked token (-inf) is never a reason
// for a status; among several reasons RowStatus orders precedence.
#pragma once

#include "semantics/widen.h"
#include "sluice/status.hpp"

namespace sluice::semantics {

struct RowScan {
  RowStatus status;
  float max;        // m, when the status is kOk
  int64_t support;  // number of tokens that are not masked
};

// The part of it that draws and weights need.
struct StatusAndMax {
  RowStatus status;
  float max;
};

SLUICE_HD inline RowStatus Worse(RowStatus a, RowStatus b) { return a > b ? a : b; }

SLUICE_HD inline RowScan ScanRow(const Row& row) {
  RowScan scan{RowStatus::kOk, -Infinity(), 0};
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    if (x == -Infinity()) continue;
    ++scan.support;
    if (IsNan(x)) {
      scan.status = Worse(scan.status, RowStatus::kNanInput);
    } else if (x == Infinity()) {
      scan.status = Worse(scan.status, RowStatus::kPosInfInput);
    } else if (x > scan.max) {
      scan.max = x;
    }
  }
  if (scan.support == 0) scan.status = RowStatus::kEmptySupport;
  return scan;
}

}  // namespace sluice::semantics
