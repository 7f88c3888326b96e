// The status of a row and its maximum, from what each thread of a team has seen of it.
#pragma once

#include "cuda/team.cuh"
#include "semantics/order.h"
#include "semantics/row_status.h"

namespace sluice::cuda {

// largest: of the values that are not NaN.
__device__ inline semantics::StatusAndMax StatusAndMaxOf(const Team& team, float largest,
                                                         bool has_nan) {
  const RowStatus mine = has_nan               ? RowStatus::kNanInput
                         : largest == INFINITY ? RowStatus::kPosInfInput
                         : largest > -INFINITY ? RowStatus::kOk
                                               : RowStatus::kEmptySupport;
  // A row is empty only when all of its threads have seen nothing.
  const bool is_empty = mine == RowStatus::kEmptySupport;
  const uint64_t status = is_empty ? 0 : static_cast<uint64_t>(mine);
  const uint64_t key = is_empty ? 0 : semantics::OrderKey(largest);
  const uint64_t found = team.Max(status << 32 | key);
  return {found == 0 ? RowStatus::kEmptySupport : static_cast<RowStatus>(found >> 32),
          semantics::ValueOfKey(static_cast<uint32_t>(found))};
}

}  // namespace sluice::cuda
