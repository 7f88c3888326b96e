// Every algorithm by its name.
#if defined(SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#undef SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#else
#define SLUICE_SELECT_CPU_ALGORITHMS_FINDERS_INL_H_
#endif

#include "select/cpu/algorithms/pivot-inl.h"
#include "select/cpu/algorithms/quickselect-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

#define SLUICE_FINDER(find) \
  BoundaryFinder { find<Measure::kCount>, find<Measure::kMass>, find<Measure::kMassInAnyOrder> }

// The certified way has no loop here; rows that it does not cover go to the pivots.
inline BoundaryFinder FinderOf(SelectAlgorithm algorithm) {
  switch (algorithm) {
    case SelectAlgorithm::kQuickselect:
      return SLUICE_FINDER(FindByQuickselect);
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
