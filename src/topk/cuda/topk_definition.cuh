// topk by counting digits of order keys over the whole row: exact for every row and every k, in
// some ten reads. Rows that other ways do not decide end here.
#pragma once

#include "select/cuda/collect.cuh"
#include "select/cuda/collect_sorted.cuh"

namespace sluice::cuda {

// In shared memory, of all blocks of the team.
struct DefinitionMemory {
  CollectMemory collect;
  SortedMemory sorted;
};

// put(place, id, x) for the first `wanted` scores of a row, by index or by the total order; 1 <=
// `wanted` <= scores. Not inline, so that its registers do not burden other ways.
template <DType kDType, typename Put>
__device__ __noinline__ RowStatus TopkByDefinition(Team team, DefinitionMemory& memory,
                                                   const void* row, int scores, int wanted,
                                                   bool sorted, Put put) {
  const RowSlice<kDType> slice(team, row, scores);
  bool has_nan = false;
  slice.ForEach([&](float x, int) { has_nan |= semantics::IsNan(x); });
  if (team.Max(has_nan ? 1 : 0) != 0) return RowStatus::kNanInput;
  const Found found = Find<Amount::kCount>(
      team, memory.sorted.find, static_cast<uint64_t>(wanted),
      [&](auto add) { slice.ForEach([&](float x, int) { add(semantics::OrderKey(x), 1u, 0u); }); });
  Cut cut = {};
  cut.upper = INFINITY;
  cut.lower = semantics::ValueOfKey(found.key);
  cut.ties_kept = wanted - static_cast<int>(found.count_above);
  const IdOrderedSlice<kDType> stretch(team, row, scores);
  const TieRules rules(cut);
  const KeptCount count = CountKept(team, memory.collect, stretch, rules);
  if (!sorted) {
    ForEachKept(stretch, rules, count,
                [&](float x, int id, int64_t place) { put(static_cast<int>(place), id, x); });
  } else {
    const CutIds ids = ResolveTies(team, memory.sorted.find, slice, cut);
    PutInParts(team, memory.sorted, slice, ids, count.kept, count.kept,
               [&](int64_t place, int id, float x) { put(static_cast<int>(place), id, x); });
  }
  return RowStatus::kOk;
}

}  // namespace sluice::cuda
