// Every algorithm by its name.
#if defined(SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#undef SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#else
#define SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#endif

#include "select/cpu/algorithms/filter_scan-inl.h"
#include "select/cpu/algorithms/filter_sort-inl.h"
#include "select/cpu/algorithms/histogram-inl.h"
#include "select/cpu/algorithms/pivot-inl.h"
#include "select/cpu/algorithms/quick_find_max-inl.h"
#include "select/cpu/algorithms/quickselect-inl.h"
#include "select/cpu/algorithms/radix-inl.h"
#include "select/cpu/algorithms/sort-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

#define SLUICE_FINDER(find) \
  BoundaryFinder { find<Measure::kCount>, find<Measure::kMass>, find<Measure::kMassInAnyOrder> }

// The certified way has no loop here; rows that it does not cover go to the pivots.
inline BoundaryFinder FinderOf(SelectAlgorithm algorithm) {
  switch (algorithm) {
    case SelectAlgorithm::kSort:
      return SLUICE_FINDER(FindBySorting);
    case SelectAlgorithm::kFilterSort:
      return SLUICE_FINDER(FindByFilterAndSort);
    case SelectAlgorithm::kFilterScan:
      return SLUICE_FINDER(FindByFilterAndScan);
    case SelectAlgorithm::kQuickFindMax:
      return SLUICE_FINDER(FindByQuickFindMax);
    case SelectAlgorithm::kHistogram:
      return SLUICE_FINDER(FindByHistogram);
    case SelectAlgorithm::kQuickselect:
      return SLUICE_FINDER(FindByQuickselect);
    case SelectAlgorithm::kRadix:
      return SLUICE_FINDER(FindByRadix);
    case SelectAlgorithm::kAuto:
    case SelectAlgorithm::kCertified:
    case SelectAlgorithm::kPivot:
      break;
  }
  return SLUICE_FINDER(FindByPivots);
}

#undef SLUICE_FINDER

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
