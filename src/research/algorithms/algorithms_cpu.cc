// The loops of the study's algorithms with vectors (Highway), compiled once for each SIMD target.
// The rules around them are the core's, in select_list-inl.h.
#include "research/algorithms/row_selectors.h"
#include "semantics/select_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "research/algorithms/algorithms_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "research/algorithms/filter_scan-inl.h"
#include "research/algorithms/filter_sort-inl.h"
#include "research/algorithms/histogram-inl.h"
#include "research/algorithms/quick_find_max-inl.h"
#include "research/algorithms/radix-inl.h"
#include "research/algorithms/sort-inl.h"
#include "select/cpu/select_list-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

inline SelectedSet SelectBy(const BoundaryFinder& finder, const RowRequest& request,
                            std::byte* workspace) {
  if (!semantics::AreValid(request.params, request.limits) || !semantics::IsValid(request.key)) {
    SelectedSet selected;
    selected.cut = semantics::CutOfStatus(RowStatus::kBadParam);
    return selected;
  }
  constexpr SelectAlgorithm kNotOfTheCore = SelectAlgorithm::kAuto;
  switch (request.row.dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return SelectFromList<ReadBf16>(request, finder, kNotOfTheCore, workspace);
    case DType::kF16:
      return SelectFromList<ReadF16>(request, finder, kNotOfTheCore, workspace);
  }
  return SelectFromList<ReadF32>(request, finder, kNotOfTheCore, workspace);
}

#define SLUICE_SELECT_BY(name, find)                                                               \
  inline SelectedSet name(const RowRequest& request, std::byte* workspace) {                       \
    return SelectBy({find<Measure::kCount>, find<Measure::kMass>, find<Measure::kMassInAnyOrder>}, \
                    request, workspace);                                                           \
  }
SLUICE_SELECT_BY(SelectBySort, FindBySorting)
SLUICE_SELECT_BY(SelectByFilterSort, FindByFilterAndSort)
SLUICE_SELECT_BY(SelectByFilterScan, FindByFilterAndScan)
SLUICE_SELECT_BY(SelectByQuickFindMax, FindByQuickFindMax)
SLUICE_SELECT_BY(SelectByHistogram, FindByHistogram)
SLUICE_SELECT_BY(SelectByRadix, FindByRadix)
#undef SLUICE_SELECT_BY

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice::research {

// Constants: no code of a target runs before it is known to be there.
const RowSelectors kSelectorsAvx2 = {.sort = N_AVX2::SelectBySort,
                                     .filter_sort = N_AVX2::SelectByFilterSort,
                                     .filter_scan = N_AVX2::SelectByFilterScan,
                                     .quick_find_max = N_AVX2::SelectByQuickFindMax,
                                     .histogram = N_AVX2::SelectByHistogram,
                                     .radix = N_AVX2::SelectByRadix};
const RowSelectors kSelectorsAvx512 = {.sort = N_AVX3::SelectBySort,
                                       .filter_sort = N_AVX3::SelectByFilterSort,
                                       .filter_scan = N_AVX3::SelectByFilterScan,
                                       .quick_find_max = N_AVX3::SelectByQuickFindMax,
                                       .histogram = N_AVX3::SelectByHistogram,
                                       .radix = N_AVX3::SelectByRadix};

}  // namespace sluice::research
#endif
