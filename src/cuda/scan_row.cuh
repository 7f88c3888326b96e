// The status of a row, its maximum and its support, on a team of threads.
#pragma once

#include "cuda/team.cuh"
#include "semantics/order.h"
#include "semantics/row_status.h"

namespace sluice::cuda {

template <typename Slice>
__device__ semantics::RowScan ScanRow(const Team& team, const Slice& slice) {
  uint32_t worst = 0;
  uint32_t max_key = 0;
  uint32_t support = 0;
  slice.ForEach([&](float x, int) {
    if (x == -INFINITY) return;
    ++support;
    if (semantics::IsNan(x)) {
      worst = max(worst, static_cast<uint32_t>(RowStatus::kNanInput));
    } else if (x == INFINITY) {
      worst = max(worst, static_cast<uint32_t>(RowStatus::kPosInfInput));
    } else {
      max_key = max(max_key, semantics::OrderKey(x));
    }
  });
  semantics::RowScan scan;
  scan.support = static_cast<int64_t>(team.Sum(support));
  scan.max = semantics::ValueOfKey(static_cast<uint32_t>(team.Max(max_key)));
  scan.status =
      scan.support == 0 ? RowStatus::kEmptySupport : static_cast<RowStatus>(team.Max(worst));
  return scan;
}

}  // namespace sluice::cuda
