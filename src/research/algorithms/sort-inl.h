// Sort everything, walk to the boundary. It is also the way out of the algorithms that may only do
// a bounded number of rounds.
#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>

#if defined(SLUICE_RESEARCH_ALGORITHMS_SORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_SORT_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_SORT_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_SORT_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Key and weight in one integer that sorts by the key; the key alone where there are no weights.
template <Measure kMeasure>
using Sortable = std::conditional_t<kMeasure == Measure::kCount, uint32_t, uint64_t>;

template <Measure kMeasure>
Sortable<kMeasure> ToSortable(const Elements& list, size_t i) {
  const uint32_t key = semantics::OrderKey(list.keys[i]);
  if constexpr (kMeasure == Measure::kCount) {
    return key;
  } else {
    return uint64_t{key} << 32 | semantics::BitsOf(list.weights[i]);
  }
}

// Sorts elements and walks them, from what is already known to lie above them all. std::sort is an
// introsort; it is put down as one read for each element and level.
template <Measure kMeasure>
Boundary SortAndWalk(Sortable<kMeasure>* elements, size_t size, Boundary found, uint64_t target,
                     SelectWork& work) {
  std::sort(elements, elements + size, std::greater<>());
  size_t i = 0;
  for (;;) {
    Boundary next = found;
    uint32_t key = 0;
    if constexpr (kMeasure == Measure::kCount) {
      key = elements[i];
      while (i < size && elements[i] == key) ++i, ++next.above;
    } else {
      key = static_cast<uint32_t>(elements[i] >> 32);
      for (; i < size && static_cast<uint32_t>(elements[i] >> 32) == key; ++i) {
        const float weight = semantics::FloatOf(static_cast<uint32_t>(elements[i]));
        next.mass_above += static_cast<uint64_t>(weight);
        ++next.above;
      }
    }
    if (MeasureAbove<kMeasure>(next) >= target) {
      found.value = semantics::ValueOfKey(key);
      found.ties = next.above - found.above;
      break;
    }
    found = next;
  }
  work.elements_read += static_cast<int64_t>(size * static_cast<size_t>(std::bit_width(size)) + i);
  return found;
}

template <Measure kMeasure>
Boundary FindBySorting(const Elements& list, uint64_t target, const Scratch& scratch,
                       SelectWork& work) {
  auto* elements = scratch.As<Sortable<kMeasure>>();
  for (size_t i = 0; i < list.size; ++i) elements[i] = ToSortable<kMeasure>(list, i);
  work.elements_read += static_cast<int64_t>(list.size);
  return SortAndWalk<kMeasure>(elements, list.size, {}, target, work);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
