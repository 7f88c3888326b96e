// topk for scores: exactly min(k, visible) indices under the total order.
//
// Infinities are ordinary scores; a NaN among the visible scores is a status. Scores after the
// visible length are never read.
#pragma once

#include "semantics/order.h"
#include "semantics/row_status.h"
#include "semantics/widen.h"

namespace sluice::semantics {

// Row `step` of a request with next_n rows: the last of them sees the whole length.
SLUICE_HD inline int64_t VisibleLength(int64_t length, int32_t next_n, int32_t step) {
  const int64_t visible = length - next_n + step + 1;
  return visible > 0 ? visible : 0;
}

// Writes the answer to indices[0, k). workspace: row.size tokens, row.size being what is visible.
// values may be null.
SLUICE_HD inline RowStatus TopkScores(const Row& row, int32_t k, bool sorted, Token* workspace,
                                      int32_t* indices, float* values) {
  RowStatus status = RowStatus::kOk;
  for (int64_t i = 0; i < row.size; ++i) {
    workspace[i] = {row[i], static_cast<int32_t>(i)};
    if (IsNan(workspace[i].x)) status = RowStatus::kNanInput;
  }
  int64_t count = 0;
  if (status == RowStatus::kOk) {
    SortByOrder(workspace, row.size);
    count = k < row.size ? k : row.size;
  }
  if (!sorted) {  // by id: sort them as if all scores were equal, then look the scores up again
    for (int64_t i = 0; i < count; ++i) workspace[i].x = 0.0f;
    SortByOrder(workspace, count);
  }
  for (int64_t i = 0; i < k; ++i) {
    indices[i] = i < count ? workspace[i].id : -1;
    if (values != nullptr) values[i] = i < count ? row[indices[i]] : -Infinity();
  }
  return status;
}

}  // namespace sluice::semantics
