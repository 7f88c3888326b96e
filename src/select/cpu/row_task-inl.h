// The common parts of the ways to select one row: memory, candidates, and the form of a set.
#include <algorithm>

#include "select/select_table.h"
#include "semantics/select_row.h"

#if defined(SLUICE_SELECT_CPU_ROW_TASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ROW_TASK_INL_H_
#undef SLUICE_SELECT_CPU_ROW_TASK_INL_H_
#else
#define SLUICE_SELECT_CPU_ROW_TASK_INL_H_
#endif

#include "select/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The memory of one row's selection, carved from a worker's workspace.
struct RowMemory {
  CandidateList list;
  float* weights;   // of the list
  LaneMask* masks;  // one a group; of either kind, in the same memory
  ElementMask* element_masks;
  float* scratch_x;
  float* scratch_weights;

  static constexpr size_t kMaxLanes = 16;
  // Room for four vectors more, and a multiple of a vector, so that every array is aligned.
  static size_t Padded(int64_t vocab) {
    return (static_cast<size_t>(vocab) + 5 * kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  }
  static size_t Bytes(int64_t vocab) {
    return Padded(vocab) * 5 * sizeof(float) + (Padded(vocab) / 64 + 1) * sizeof(uint64_t);
  }
  static RowMemory In(std::byte* memory, int64_t vocab) {
    const size_t padded = Padded(vocab);
    RowMemory row;
    row.scratch_x = reinterpret_cast<float*>(memory);
    row.scratch_weights = row.scratch_x + padded;
    row.list.x = row.scratch_weights + padded;
    row.list.ids = reinterpret_cast<int32_t*>(row.list.x + padded);
    row.list.size = 0;
    row.weights = reinterpret_cast<float*>(row.list.ids + padded);
    row.element_masks = reinterpret_cast<ElementMask*>(row.weights + padded);
    row.masks = reinterpret_cast<LaneMask*>(row.element_masks);
    return row;
  }

  Measured Counted() const { return {list.x, nullptr, static_cast<size_t>(list.size)}; }
  Measured Weighed(const Weigher& weigher) const {
    Weigh(list.x, static_cast<size_t>(list.size), weigher, weights);
    return {list.x, weights, static_cast<size_t>(list.size)};
  }
};

// The state that the steps of one row's selection share.
struct RowTask {
  const semantics::Row& row;
  const SelectParams& params;
  RowMemory memory;
  bool needs_tokens;  // the kept tokens, for a draw; else the Cut is all
  int64_t elements_read = 0;

  bool Has(semantics::Filter filter) const {
    return semantics::Has(semantics::RulesOf(params, row.size), filter);
  }
  // One pass over the row.
  void CountPass() { elements_read += row.size; }
};

inline SelectedSet WithStatus(RowStatus status) {
  SelectedSet selected;
  selected.cut = semantics::CutOfStatus(status);
  return selected;
}

// NaN and +inf: the definition says which comes first.
inline RowStatus StatusOf(const semantics::Row& row, bool has_nan, float max) {
  if (has_nan || max == semantics::Infinity()) return semantics::ScanRow(row).status;
  return RowStatus::kOk;
}

// The first `ties_kept` of the tokens equal to `lower`, and `above` tokens above it.
inline SelectedSet SetOf(float max, float lower, int64_t above, int64_t ties_kept) {
  SelectedSet selected;
  selected.max = max;
  selected.cut.lower = lower + 0.0f;
  selected.cut.ties_kept = static_cast<int32_t>(ties_kept);
  selected.cut.count = static_cast<int32_t>(above + ties_kept);
  return selected;
}

// As above, of a set that lies among the candidates: they are reduced to it on the first
// use.
inline SelectedSet SetOfCandidates(RowTask& task, float max, const Boundary& boundary,
                                   int64_t ties_kept) {
  SelectedSet selected = SetOf(max, boundary.value, boundary.above, ties_kept);
  if (!task.needs_tokens) return selected;
  CandidateList& list = task.memory.list;
  KeepAtLeast(list, boundary.value);
  if (ties_kept < boundary.ties) TrimTies(list, boundary.value, ties_kept);
  selected.kept = {list.x, list.ids, list.size};
  return selected;
}

template <class Read, class Mask>
void CollectCandidates(RowTask& task, float threshold, const Mask* masks) {
  RowMemory& memory = task.memory;
  uint32_t* marked = reinterpret_cast<uint32_t*>(memory.scratch_x);
  if (task.needs_tokens) {
    Collect<Read, Mask, true>(task.row, threshold, masks, marked, memory.list);
  } else {
    Collect<Read, Mask, false>(task.row, threshold, masks, marked, memory.list);
  }
  task.elements_read += memory.list.size;
}

// One pass over the row for the candidates from a threshold on, of which about `expected` are
// expected. Returns whether there is a NaN.
template <class Read>
bool FindCandidates(RowTask& task, float threshold, float expected) {
  const RowMemory& memory = task.memory;
  // From some share on most groups hold one, and a test of each group again costs more than a bit
  // an element.
  const bool are_many = expected * 160.0f > static_cast<float>(task.row.size);
  bool has_nan = false;
  if (are_many) {
    has_nan = ThresholdPass<Read>(task.row, threshold, memory.element_masks);
    CollectCandidates<Read>(task, threshold, memory.element_masks);
  } else {
    has_nan = ThresholdPass<Read>(task.row, threshold, memory.masks);
    CollectCandidates<Read>(task, threshold, memory.masks);
  }
  task.CountPass();
  return has_nan;
}

// The boundary of top-p among the candidates, which hold at least the target mass, and how many of
// its ties are kept.
struct MassBoundary {
  Boundary at;
  int64_t ties_kept;
  uint64_t mass;  // of what is kept
};

inline MassBoundary FindMassBoundary(const RowMemory& memory, const Measured& weighed,
                                     uint64_t mass, float max, float scale, uint64_t target,
                                     Ties rule) {
  MassBoundary found;
  found.at =
      NarrowToBoundary<true>(weighed, mass, target, memory.scratch_x, memory.scratch_weights);
  const uint64_t weight = semantics::Weight(found.at.value, max, scale);
  found.ties_kept = found.at.ties;
  if (rule == Ties::kLowestId && weight > 0) {
    found.ties_kept = semantics::TopPTiesKept(found.at.mass_above, weight, found.at.ties, target);
  }
  found.mass = found.at.mass_above + static_cast<uint64_t>(found.ties_kept) * weight;
  return found;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
