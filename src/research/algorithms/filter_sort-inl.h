// Drop what cannot be kept, sort the rest (llama2.c; J. Rudolph, 2023).
#include <bit>
#include <cstring>

#if defined(SLUICE_RESEARCH_ALGORITHMS_FILTER_SORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_FILTER_SORT_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_FILTER_SORT_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_FILTER_SORT_INL_H_
#endif

#include "research/algorithms/filter-inl.h"
#include "research/algorithms/sort-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The elements that belongs(keys, weights) marks, as what sorts.
template <Measure kMeasure, class Belongs>
size_t GatherSortables(const Elements& list, Sortable<kMeasure>* elements, Belongs belongs) {
  const F32 d;
  size_t count = 0;
  for (size_t i = 0; i < list.size; i += hn::Lanes(d)) {
    const auto mask = belongs(hn::LoadU(d, list.keys + i), WeightsAt<kMeasure>(list.weights, i));
    if (hn::AllFalse(d, mask)) continue;
    uint8_t bytes[8] = {};  // Highway writes whole bytes, at most the bits of a vector
    hn::StoreMaskBits(d, mask, bytes);
    uint64_t bits;
    std::memcpy(&bits, bytes, sizeof bits);
    for (; bits != 0; bits &= bits - 1) {
      const size_t at = i + static_cast<size_t>(std::countr_zero(bits));
      if (at < list.size) elements[count++] = ToSortable<kMeasure>(list, at);
    }
  }
  return count;
}

template <Measure kMeasure>
Boundary FindByFilterAndSort(const Elements& list, uint64_t target, const Scratch& scratch,
                             SelectWork& work) {
  const CandidateFilter<kMeasure> filter(list, target, scratch, work);
  auto* elements = scratch.As<Sortable<kMeasure>>();
  const size_t count = GatherSortables<kMeasure>(
      list, elements, [&](VecF32 keys, VecF32 weights) HWY_ATTR { return filter(keys, weights); });
  work.elements_read += static_cast<int64_t>(list.size);
  return SortAndWalk<kMeasure>(elements, count, {}, target, work);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
