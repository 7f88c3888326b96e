// Count and mass by digit of the value, from the highest: 11, 11 and 10 bits of the order key.
// After each digit only the elements of the boundary's bucket go on, and after the third they are
// all equal: three passes over ever fewer elements, whatever the row holds.
#include <algorithm>

#if defined(SLUICE_RESEARCH_ALGORITHMS_RADIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_RADIX_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_RADIX_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_RADIX_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <Measure kMeasure>
Boundary FindByRadix(const Elements& list, uint64_t target, const Scratch& scratch,
                     SelectWork& work) {
  constexpr int kDigitBits[] = {11, 11, 10};
  constexpr size_t kMostBuckets = size_t{1} << 11;
  uint64_t masses[kMostBuckets];
  uint32_t counts[kMostBuckets];
  const float* keys = list.keys;
  const float* weights = list.weights;
  size_t size = list.size;
  Boundary found{};
  uint32_t prefix = 0;  // the digits so far
  int shift = 32;
  for (const int bits : kDigitBits) {
    shift -= bits;
    const size_t buckets = size_t{1} << bits;
    const uint32_t digit_mask = static_cast<uint32_t>(buckets - 1);
    std::fill_n(counts, buckets, 0);
    if constexpr (kMeasure != Measure::kCount) std::fill_n(masses, buckets, 0);
    for (size_t i = 0; i < size; ++i) {
      const uint32_t digit = semantics::OrderKey(keys[i]) >> shift & digit_mask;
      ++counts[digit];
      if constexpr (kMeasure != Measure::kCount) {
        masses[digit] += static_cast<uint64_t>(static_cast<int64_t>(weights[i]));
      }
    }
    work.elements_read += static_cast<int64_t>(size);

    uint32_t digit = digit_mask;
    for (;; --digit) {
      const uint64_t mass = kMeasure == Measure::kCount ? 0 : masses[digit];
      const uint64_t measure = kMeasure == Measure::kCount ? counts[digit] : mass;
      if (MeasureAbove<kMeasure>(found) + measure >= target) break;
      found.above += counts[digit];
      found.mass_above += mass;
    }
    prefix |= digit << shift;
    found.ties = counts[digit];
    if (shift == 0) break;
    const KeysWithin within(prefix, prefix | ((uint32_t{1} << shift) - 1));
    work.elements_read += static_cast<int64_t>(size);
    size = Compact<kMeasure>(keys, weights, size, scratch.Keys(), scratch.Weights(),
                             [&](VecF32 key, VecF32) HWY_ATTR { return within(key); });
    keys = scratch.Keys();
    weights = scratch.Weights();
  }
  found.value = semantics::ValueOfKey(prefix);
  return found;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
