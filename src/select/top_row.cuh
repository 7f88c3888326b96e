// One row by its top: guess, certify, and select among the few that are left. What the certificate
// does not cover is for RowRules on the row itself.
#pragma once

#include "backend/cut_ids.cuh"
#include "select/row_rules.cuh"
#include "select/sorted_rules.cuh"

namespace sluice::cuda {

// In dynamic shared memory.
struct SelectMemory {
  TeamMemory team;
  FindMemory find;
  TopList top;
  // Of the first block, for the others.
  Cut top_cut;
  int32_t top_last;
};

// What the first block of the team knows of a row that was decided by its top.
struct TopSelection {
  Cut cut;
  float max;
  bool is_sorted;  // then `kept` holds a token a thread, else the list is longer than the block
  KeptTop kept;
};

// For the first block; size: what ListTop answered.
__device__ inline TopSelection SelectTop(const Team& block, SelectMemory& memory, int size,
                                         const SelectParams& params, const NoiseKey& key) {
  TopSelection selection;
  selection.is_sorted = size <= block.threads();
  if (selection.is_sorted) {
    SortTop(memory.top, size);
    selection.kept = SelectFromTop(block, memory.top, size, params, key);
    selection.cut = CutOfTop(memory.top, selection.kept, size);
    selection.max = selection.kept.max;
    return selection;
  }
  const ListSlice slice(memory.top, size);
  uint32_t max_key = 0;
  slice.ForEach([&](float x, int) { max_key = max(max_key, semantics::OrderKey(x)); });
  selection.max = semantics::ValueOfKey(static_cast<uint32_t>(block.Max(max_key)));
  const semantics::RowScan scan{RowStatus::kOk, selection.max, size};
  selection.cut = RowRules(block, memory.find, slice, scan, params, key).Select(nullptr);
  return selection;
}

}  // namespace sluice::cuda
