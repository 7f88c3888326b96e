// Three-way partitions around a pivot, towards the boundary.
//
// A round tallies what is above the pivot and what equals it, which says in which of the three
// parts the boundary lies; then that part alone is moved together. The pivot is the median of three
// medians of three: what equals it is not empty, so every round ends the search or makes the list
// shorter. When a round leaves more than 7/8 of the list, all further pivots are the middle of the
// range of the keys that are left, which halves that range: 32 of those are enough for any list.
#include <algorithm>

#if defined(SLUICE_SELECT_CPU_ALGORITHMS_QUICKSELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ALGORITHMS_QUICKSELECT_INL_H_
#undef SLUICE_SELECT_CPU_ALGORITHMS_QUICKSELECT_INL_H_
#else
#define SLUICE_SELECT_CPU_ALGORITHMS_QUICKSELECT_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The median of the medians of three times three elements, evenly spread.
inline float Ninther(const float* keys, size_t size) {
  auto median = [](float a, float b, float c) {
    return std::max(std::min(a, b), std::min(std::max(a, b), c));
  };
  auto median_from = [&](size_t i) {
    auto at = [&](size_t k) { return keys[(size - 1) * k / 8]; };
    return median(at(i), at(i + 1), at(i + 2));
  };
  return median(median_from(0), median_from(3), median_from(6));
}

inline float MiddleOfRange(const float* keys, size_t size) {
  const KeyRange range = RangeOf(keys, size);
  const uint32_t low = semantics::OrderKey(range.low);
  const uint32_t high = semantics::OrderKey(range.high);
  return semantics::ValueOfKey(low + (high - low) / 2) + 0.0f;
}

template <Measure kMeasure>
Boundary FindByQuickselect(const Elements& list, uint64_t target, const Scratch& scratch,
                           SelectWork& work) {
  const F32 d;
  const float* keys = list.keys;  // the part in which the boundary lies
  const float* weights = list.weights;
  size_t size = list.size;
  Boundary found{};
  bool takes_middle = false;
  for (;;) {
    const float pivot = takes_middle ? MiddleOfRange(keys, size) : Ninther(keys, size);
    work.elements_read += takes_middle ? static_cast<int64_t>(size) : 9;
    const auto vpivot = hn::Set(d, pivot);
    Tally<kMeasure> above;
    Tally<kMeasure> equal;
    ForEachVector(
        size,
        [&](size_t i) HWY_ATTR {
          const auto key = hn::LoadU(d, keys + i);
          const auto weight = WeightsAt<kMeasure>(weights, i);
          above.Add(hn::Gt(key, vpivot), weight);
          equal.Add(hn::Eq(key, vpivot), weight);
        },
        [&]() HWY_ATTR {
          above.EndBlock();
          equal.EndBlock();
        });
    work.elements_read += static_cast<int64_t>(2 * size);

    const uint64_t known = MeasureAbove<kMeasure>(found);
    const bool is_above = known + above.measure() >= target;
    if (!is_above) {
      found.above += above.count();
      found.mass_above += above.mass();
      if (known + above.measure() + equal.measure() >= target) {
        found.value = pivot;
        found.ties = equal.count();
        return found;
      }
      found.above += equal.count();
      found.mass_above += equal.mass();
    }
    const auto nothing = hn::Set(d, -semantics::Infinity());
    const size_t left = Compact<kMeasure>(
        keys, weights, size, scratch.Keys(), scratch.Weights(), [&](VecF32 key, VecF32) HWY_ATTR {
          return is_above ? hn::Gt(key, vpivot)
                          : hn::And(hn::Lt(key, vpivot), hn::Gt(key, nothing));
        });
    takes_middle = takes_middle || left > size / 8 * 7;
    keys = scratch.Keys();
    weights = scratch.Weights();
    size = left;
  }
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
