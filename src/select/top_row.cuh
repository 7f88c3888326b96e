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
  KeptTop kept;  // of SelectSorted: a token a thread
};

// How many threads have a part in SelectSorted, for a list of that many tokens: a power of two,
// because every barrier costs more with more of them.
__device__ inline int ThreadsToSort(int size) {
  int threads = 2 * kWarpSize;
  while (threads < size) threads *= 2;
  return threads;
}

// By ThreadsToSort(size) threads; PruneTop has been here.
__device__ inline TopSelection SelectSorted(const Team& first, TopList& list, int size,
                                            const SelectParams& params, const NoiseKey& key) {
  SortTop(first, list, size);
  TopSelection selection;
  selection.kept = SelectFromTop(first, list, size, params, key);
  selection.cut = CutOfTop(first, list, selection.kept, size);
  selection.max = selection.kept.max;
  return selection;
}

// By the whole block, for a list that is longer than the block.
__device__ inline TopSelection SelectListed(const Team& block, SelectMemory& memory, int size,
                                            const SelectParams& params, const NoiseKey& key) {
  const ListSlice slice(memory.top, size);
  uint32_t max_key = 0;
  slice.ForEach([&](float x, int) { max_key = max(max_key, semantics::OrderKey(x)); });
  TopSelection selection = {};
  selection.max = semantics::ValueOfKey(static_cast<uint32_t>(block.Max(max_key)));
  const semantics::RowScan scan{RowStatus::kOk, selection.max, size};
  selection.cut = RowRules(block, memory.find, slice, scan, params, key).Select(nullptr);
  return selection;
}

}  // namespace sluice::cuda
