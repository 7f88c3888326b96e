// Count and mass by bucket, then the boundary's bucket alone, by ever finer buckets.
//
// The first buckets are the octaves of the weight, its exponent: 41 of them and one for weight 0
// (J. Rudolph, 2023). Where there are no weights, or they do not follow the keys, they are the
// octaves of the key itself. A flat tail lies in a few octaves, so the boundary's is divided again:
// 256 buckets across the range of the keys that are left. Each round divides that range by 256, so
// four are enough for any list.
#include <algorithm>

#if defined(SLUICE_RESEARCH_ALGORITHMS_HISTOGRAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_HISTOGRAM_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_HISTOGRAM_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_HISTOGRAM_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// One bucket's elements, and what lies in the buckets above it.
struct BucketChoice {
  uint32_t bucket;
  Boundary above;
};

// The highest bucket with which what lies above measures the target.
template <Measure kMeasure>
BucketChoice ChooseBucket(const uint32_t* counts, const uint64_t* masses, uint32_t buckets,
                          Boundary above, uint64_t target) {
  uint32_t bucket = buckets - 1;
  for (;; --bucket) {
    const uint64_t mass = kMeasure == Measure::kCount ? 0 : masses[bucket];
    const uint64_t measure = kMeasure == Measure::kCount ? counts[bucket] : mass;
    if (MeasureAbove<kMeasure>(above) + measure >= target) break;
    above.above += counts[bucket];
    above.mass_above += mass;
  }
  return {bucket, above};
}

// The octave of the weight at which the boundary lies: its exponent, as in the bits of a float.
inline BucketChoice ChooseOctaveOfWeight(const Elements& list, uint64_t target) {
  constexpr uint32_t kBuckets = 127 + 40 + 1;  // 0 is the weight 0; below 127 there is none else
  constexpr size_t kCopies = 4;  // neighbours often share an octave: no add waits for the last one
  // Count above, sum of significands' fractions below: one add for both.
  constexpr int kFractionBits = 40;
  constexpr size_t kBlock = size_t{1} << 16;
  uint64_t packed[kCopies][kBuckets];
  uint32_t counts[kBuckets] = {};
  uint64_t fractions[kBuckets] = {};
  for (size_t begin = 0; begin < list.size; begin += kBlock) {
    const size_t end = std::min(list.size, begin + kBlock);
    std::fill_n(packed[0], kCopies * kBuckets, 0);
    auto add = [&](size_t copy, size_t i) {
      const uint32_t bits = semantics::BitsOf(list.weights[i]);
      packed[copy][bits >> 23] += (uint64_t{1} << kFractionBits) + (bits & 0x7fffffu);
    };
    size_t i = begin;
    for (; i + kCopies <= end; i += kCopies) {
      for (size_t copy = 0; copy < kCopies; ++copy) add(copy, i + copy);
    }
    for (; i < end; ++i) add(0, i);
    for (uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      for (size_t copy = 0; copy < kCopies; ++copy) {
        counts[bucket] += static_cast<uint32_t>(packed[copy][bucket] >> kFractionBits);
        fractions[bucket] += packed[copy][bucket] & ((uint64_t{1} << kFractionBits) - 1);
      }
    }
  }
  uint64_t masses[kBuckets] = {};
  for (uint32_t bucket = 127; bucket < kBuckets; ++bucket) {
    const uint64_t significands = fractions[bucket] + (uint64_t{counts[bucket]} << 23);
    const int exponent = static_cast<int>(bucket) - 127;
    masses[bucket] =
        exponent >= 23 ? significands << (exponent - 23) : significands >> (23 - exponent);
  }
  return ChooseBucket<Measure::kMass>(counts, masses, kBuckets, {}, target);
}

// The bucket of (key - low) >> shift, both as keys of the order, at which the boundary lies.
template <Measure kMeasure, uint32_t kBuckets>
BucketChoice ChooseBucketOfKey(const float* keys, const float* weights, size_t size, uint32_t low,
                               int shift, const Boundary& above, uint64_t target) {
  uint32_t counts[kBuckets] = {};
  uint64_t masses[kBuckets] = {};
  for (size_t i = 0; i < size; ++i) {
    const uint32_t bucket = (semantics::OrderKey(keys[i]) - low) >> shift;
    ++counts[bucket];
    if constexpr (kMeasure != Measure::kCount) {
      masses[bucket] += static_cast<uint64_t>(static_cast<int64_t>(weights[i]));
    }
  }
  return ChooseBucket<kMeasure>(counts, masses, kBuckets, above, target);
}

template <Measure kMeasure>
Boundary FindByHistogram(const Elements& list, uint64_t target, const Scratch& scratch,
                         SelectWork& work) {
  const F32 d;
  size_t size = 0;
  Boundary found{};
  if constexpr (kMeasure == Measure::kMass) {
    const BucketChoice choice = ChooseOctaveOfWeight(list, target);
    const auto low = hn::Set(d, semantics::FloatOf(choice.bucket << 23));
    const auto end = hn::Set(d, semantics::FloatOf((choice.bucket + 1) << 23));
    found = choice.above;
    size = Compact<kMeasure>(list.keys, list.weights, list.size, scratch.Keys(), scratch.Weights(),
                             [&](VecF32, VecF32 weight) HWY_ATTR {
                               return hn::And(hn::Ge(weight, low), hn::Lt(weight, end));
                             });
  } else {
    constexpr int kOctaveShift = 23;
    const BucketChoice choice = ChooseBucketOfKey<kMeasure, 512>(list.keys, list.weights, list.size,
                                                                 0, kOctaveShift, {}, target);
    const uint32_t low = choice.bucket << kOctaveShift;
    const KeysWithin within(low, low | ((uint32_t{1} << kOctaveShift) - 1));
    found = choice.above;
    size = Compact<kMeasure>(list.keys, list.weights, list.size, scratch.Keys(), scratch.Weights(),
                             [&](VecF32 key, VecF32) HWY_ATTR { return within(key); });
  }
  work.elements_read += static_cast<int64_t>(2 * list.size);

  float* keys = scratch.Keys();
  float* weights = scratch.Weights();
  for (;;) {
    const KeyRange range = RangeOf(keys, size);
    work.elements_read += static_cast<int64_t>(size);
    if (range.low == range.high) break;
    const uint32_t low = semantics::OrderKey(range.low);
    int shift = 0;
    while ((semantics::OrderKey(range.high) - low) >> shift >= 256) ++shift;
    const BucketChoice choice =
        ChooseBucketOfKey<kMeasure, 256>(keys, weights, size, low, shift, found, target);
    found = choice.above;
    const uint32_t first = low + (choice.bucket << shift);
    const KeysWithin within(first, first + ((uint32_t{1} << shift) - 1));
    size = Compact<kMeasure>(keys, weights, size, keys, weights,
                             [&](VecF32 key, VecF32) HWY_ATTR { return within(key); });
    work.elements_read += static_cast<int64_t>(2 * size);
  }
  found.value = keys[0];
  found.ties = static_cast<int64_t>(size);
  return found;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
