// Selection of one row with vectors: guess a threshold, certify it with an exact count or mass,
// refine.
//
//   guess     a threshold from 64 vectors of the row, as if its body were Gaussian (Qrita's sigma
//             truncation, with outliers on both sides trimmed away first)
//   certify   top-k: enough candidates were found. top-p: the rest of the row, summed by a table of
//             powers with a proven error, cannot move the boundary
//   refine    top-k: a threshold from the sample itself, then every element. top-p: a better sum,
//             then the exact mass, then a band of values around a boundary far down
//
// Candidates are stored in memory for a whole row, so no guess can overflow anything. What no path
// here covers goes to the list (select_list-inl.h).
#include <algorithm>
#include <cmath>

#include "select/policy.h"
#include "select/select_table.h"
#include "semantics/select_row.h"

#if defined(SLUICE_SELECT_CPU_SELECT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_SELECT_ROW_INL_H_
#undef SLUICE_SELECT_CPU_SELECT_ROW_INL_H_
#else
#define SLUICE_SELECT_CPU_SELECT_ROW_INL_H_
#endif

#include "select/cpu/algorithms/finders-inl.h"
#include "select/cpu/guess-inl.h"
#include "select/cpu/row_task-inl.h"
#include "select/cpu/select_list-inl.h"
#include "select/cpu/top_p_search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <class Read>
SelectedSet SelectGreedy(RowTask& task) {
  const Extremes found = FindExtremes<Read, false>(task.row, nullptr);
  task.CountPass();
  const RowStatus status = StatusOf(task.row, found.has_nan, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (found.max == -semantics::Infinity()) return WithStatus(RowStatus::kEmptySupport);
  SelectedSet selected = SetOf(found.max, found.max, 0, 1);
  selected.first_id = static_cast<int32_t>(FindFrom<Read>(task.row, found.max_chunk, found.max));
  return selected;
}

// Top-k, and top-p on its survivors: everything after the one pass happens among k tokens.
template <class Read>
SelectedSet SelectTopK(RowTask& task) {
  const semantics::Row& row = task.row;
  const int64_t k = task.params.top_k;
  RowMemory& memory = task.memory;
  CandidateList& list = memory.list;
  SmallSample sample;
  sample.Take<Read>(row);
  const float aim = 1.3f * static_cast<float>(k) + 60.0f;
  float threshold = GaussianThreshold(sample, row.size, aim);
  bool has_nan = FindCandidates<Read>(task, threshold, aim);
  for (const bool is_last : {false, true}) {
    if (list.size >= k || has_nan || threshold == kLowestFinite) break;
    const float next = is_last ? kLowestFinite : SampledThreshold(sample, row.size, k);
    if (!(next < threshold)) continue;
    threshold = next;
    has_nan = FindCandidates<Read>(task, threshold, static_cast<float>(row.size));
  }
  const float max = MaxOf(list);
  const RowStatus status = StatusOf(row, has_nan, max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (list.size == 0) return WithStatus(RowStatus::kEmptySupport);

  const uint64_t kept = static_cast<uint64_t>(std::min(k, list.size));
  const Boundary boundary =
      NarrowToBoundary<false>(memory.Counted(), static_cast<uint64_t>(list.size), kept,
                              memory.scratch_x, memory.scratch_weights);
  const int64_t ties_kept = task.params.profile.ties == Ties::kAll
                                ? boundary.ties
                                : static_cast<int64_t>(kept) - boundary.above;
  const SelectedSet by_count = SetOfCandidates(task, max, boundary, ties_kept);
  if (!task.Has(semantics::Filter::kTopP)) return by_count;

  if (!task.needs_tokens) {
    KeepAtLeast(list, boundary.value);
    if (ties_kept < boundary.ties) TrimTies(list, boundary.value, ties_kept);
  }
  const float scale = semantics::ScalesOf(task.params).filter;
  const Measured weighed = memory.Weighed(Weigher(max, scale));
  const uint64_t mass = MeasureAll<true>(weighed).amount;
  const MassBoundary by_mass =
      FindMassBoundary(memory, weighed, mass, max, scale,
                       semantics::TargetMass(task.params.top_p, mass), task.params.profile.ties);
  return SetOfCandidates(task, max, by_mass.at, by_mass.ties_kept);
}

// No filter: every finite token, known by its Cut alone.
template <class Read>
SelectedSet SelectAll(RowTask& task) {
  const semantics::Row& row = task.row;
  float* chunk_minima = task.memory.scratch_x;
  const Extremes found = FindExtremes<Read, true>(row, chunk_minima);
  task.CountPass();
  const RowStatus status = StatusOf(row, found.has_nan, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (found.max == -semantics::Infinity()) return WithStatus(RowStatus::kEmptySupport);
  if (found.min > -semantics::Infinity()) {
    const int64_t ties = CountMinima<Read>(row, found.min, chunk_minima);
    return SetOf(found.max, found.min, row.size - ties, ties);
  }
  const float lowest = LowestFinite<Read>(row);
  const Counts counts = CountIn<Read>(row, lowest);
  task.CountPass();
  task.CountPass();
  return SetOf(found.max, lowest, counts.at_least - counts.equal, counts.equal);
}

// The algorithm where the certified ways do not apply.
constexpr SelectAlgorithm kForTheRest = SelectAlgorithm::kPivot;

#if HWY_TARGET == HWY_AVX2
constexpr Backend kThisBackend = Backend::kCpuAvx2;
#else
constexpr Backend kThisBackend = Backend::kCpuAvx512;
#endif

// The rules that the certified ways cover.
constexpr semantics::RuleSet kCertifiedRules = semantics::Rules(
    semantics::Filter::kGreedy, semantics::Filter::kTopK, semantics::Filter::kTopP);

// Whether a certified way exists for the request.
inline bool IsCovered(const RowRequest& request) {
  const Profile& profile = request.params.profile;
  const semantics::RuleSet rules = semantics::RulesOf(request.params, request.row.size);
  const bool is_inclusive =
      Has(rules, semantics::Filter::kTopP) && profile.top_p_boundary == TopPBoundary::kInclusive;
  return !request.needs_masses && IsWithin(rules, kCertifiedRules) && !is_inclusive &&
         !IsJoint(rules, profile);
}

// The algorithm that runs: the policy table says which for kAuto.
inline SelectAlgorithm AlgorithmFor(const RowRequest& request) {
  SelectAlgorithm algorithm = request.algorithm;
  if (algorithm == SelectAlgorithm::kAuto) {
    // One pass is all that these two take.
    const SelectKind kind = KindOf(request.params, request.row.size);
    const bool is_one_pass =
        semantics::IsGreedy(request.params) || (kind == SelectKind::kOther && IsCovered(request));
    algorithm = is_one_pass ? SelectAlgorithm::kCertified
                            : ChooseAlgorithm(kThisBackend, kind, request.row.size);
  }
  return algorithm == SelectAlgorithm::kCertified && !IsCovered(request) ? kForTheRest : algorithm;
}

template <class Read>
SelectedSet SelectRow(const RowRequest& request, std::byte* workspace) {
  const semantics::Row& row = request.row;
  const SelectParams& params = request.params;
  if (!semantics::AreValid(params, request.limits) || !semantics::IsValid(request.key)) {
    return WithStatus(RowStatus::kBadParam);
  }
  const SelectAlgorithm algorithm = AlgorithmFor(request);
  if (algorithm != SelectAlgorithm::kCertified) {
    return SelectFromList<Read>(request, FinderOf(algorithm), algorithm, workspace);
  }
  RowTask task{row, params, RowMemory::In(workspace, row.size), request.needs_tokens};
  SelectedSet selected = task.Has(semantics::Filter::kGreedy) ? SelectGreedy<Read>(task)
                         : task.Has(semantics::Filter::kTopK) ? SelectTopK<Read>(task)
                         : task.Has(semantics::Filter::kTopP) ? TopPSearch<Read>(task).Run()
                                                              : SelectAll<Read>(task);
  selected.work = {SelectAlgorithm::kCertified, task.elements_read};
  return selected;
}

// The workspace serves as a RowMemory or as a ListMemory.
inline size_t SelectRowBytes(int64_t vocab) {
  return std::max(RowMemory::Bytes(vocab), ListMemory::Bytes(vocab));
}

inline SelectedSet SelectRowOfAnyDType(const RowRequest& request, std::byte* workspace) {
  switch (request.row.dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return SelectRow<ReadBf16>(request, workspace);
    case DType::kF16:
      return SelectRow<ReadF16>(request, workspace);
  }
  return SelectRow<ReadF32>(request, workspace);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
