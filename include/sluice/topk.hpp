// The k largest of each row of scores: sparse-attention indexers, retrieval, beams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/execution.hpp"
#include "sluice/status.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

struct TopkInput {
  LogitsView scores = {};
  int32_t k = 0;

  // One length a request of next_n rows: row r of a request sees its first
  // lengths[request] - next_n + r + 1 scores. Empty: every row sees all of them.
  std::span<const int32_t> lengths = {};
  int32_t next_n = 1;

  // Indices that may be among the answer, hint_columns for each request, each shifted by
  // hint_shift: the previous step's result, say. Stale, repeated, out of range or absent: a hint
  // changes the time, never the answer.
  std::span<const int32_t> hint = {};
  int32_t hint_columns = 0;
  int32_t hint_shift = 0;

  bool sorted = false;  // by the total order; else indices ascend

  // Carried from one call to the next with the next scores of the same rows, one a row, or empty:
  // read, and written again. A score that somewhat more than k of the row reach; NaN, as at first:
  // none. Like a hint, any numbers are valid.
  std::span<float> thresholds = {};
};

size_t TopkWorkspaceBytes(const TopkInput& input, const Execution& execution);

// indices: rows * k; exactly min(k, visible) of them, then -1. values: empty, or like indices, with
// -inf after the last. statuses: one a row; a NaN among the visible scores gives kNanInput and a
// row of -1. Both infinities are ordinary scores.
void Topk(const TopkInput& input, std::span<int32_t> indices, std::span<float> values,
          std::span<RowStatus> statuses, const Execution& execution);

}  // namespace sluice
