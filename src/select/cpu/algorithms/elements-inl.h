// The parts of the algorithms' loops: exact tallies of some lanes, and moving some elements.
#include "semantics/order.h"

#if defined(SLUICE_SELECT_CPU_ALGORITHMS_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ALGORITHMS_ELEMENTS_INL_H_
#undef SLUICE_SELECT_CPU_ALGORITHMS_ELEMENTS_INL_H_
#else
#define SLUICE_SELECT_CPU_ALGORITHMS_ELEMENTS_INL_H_
#endif

#include "select/cpu/algorithms/boundary.h"
#include "support/compress-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// An exact sum over a list of any length, block by block.
class ExactSum {
 public:
  // Written out, as implicit ones are not compiled for the target.
  ExactSum() : sum_() {}

  static size_t BlockElements() { return WeightSum::kMostVectors * hn::Lanes(F32()); }

  HWY_INLINE void Add(VecF32 weights) { sum_.Add(weights); }
  void EndBlock() { total_ += sum_.Total(); }
  uint64_t total() const { return total_; }

 private:
  WeightSum sum_;
  uint64_t total_ = 0;
};

// body(i) for every vector of a list, end_of_block() as often as an ExactSum needs it.
template <class Body, class EndOfBlock>
HWY_INLINE void ForEachVector(size_t size, Body body, EndOfBlock end_of_block) {
  const size_t lanes = hn::Lanes(F32());
  for (size_t begin = 0; begin < size; begin += ExactSum::BlockElements()) {
    const size_t end = HWY_MIN(size, begin + ExactSum::BlockElements());
    for (size_t i = begin; i < end; i += lanes) body(i);
    end_of_block();
  }
}

// Number and mass of the elements of some lanes.
template <Measure kMeasure>
class Tally {
 public:
  Tally() : mass_() {}

  HWY_INLINE void Add(hn::Mask<F32> mask, VecF32 weights) {
    count_ += hn::CountTrue(F32(), mask);
    if constexpr (kMeasure != Measure::kCount) mass_.Add(hn::IfThenElseZero(mask, weights));
  }
  void EndBlock() {
    if constexpr (kMeasure != Measure::kCount) mass_.EndBlock();
  }
  int64_t count() const { return static_cast<int64_t>(count_); }
  uint64_t mass() const { return mass_.total(); }
  uint64_t measure() const { return kMeasure == Measure::kCount ? count_ : mass_.total(); }

 private:
  size_t count_ = 0;
  ExactSum mass_;
};

template <Measure kMeasure>
HWY_INLINE VecF32 WeightsAt(const float* weights, size_t i) {
  if constexpr (kMeasure == Measure::kCount) {
    return hn::Zero(F32());
  } else {
    return hn::LoadU(F32(), weights + i);
  }
}

// The measure of the elements strictly above a boundary.
template <Measure kMeasure>
uint64_t MeasureAbove(const Boundary& boundary) {
  return kMeasure == Measure::kCount ? static_cast<uint64_t>(boundary.above) : boundary.mass_above;
}

inline void PadKeys(float* keys, size_t size) {
  for (size_t i = 0; i < hn::Lanes(F32()); ++i) keys[size + i] = -semantics::Infinity();
}

// Copies the elements that belongs(keys, weights) marks, never the padding, and returns their
// number. The copy may overwrite the original: a store reaches no further than what was loaded.
template <Measure kMeasure, class Belongs>
HWY_INLINE size_t Compact(const float* keys, const float* weights, size_t size, float* to_keys,
                          float* to_weights, Belongs belongs) {
  const F32 d;
  size_t count = 0;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, keys + i);
    const auto weight = WeightsAt<kMeasure>(weights, i);
    const auto mask = belongs(key, weight);
    if (hn::AllFalse(d, mask)) continue;
    if constexpr (kMeasure != Measure::kCount) {
      CompressTo(d, weight, mask, to_weights + count);
    }
    count += CompressTo(d, key, mask, to_keys + count);
  }
  PadKeys(to_keys, count);
  return count;
}

struct KeyRange {
  float low;
  float high;
};

// The least and the largest key of a list that is not empty.
inline KeyRange RangeOf(const float* keys, size_t size) {
  const F32 d;
  const auto infinity = hn::Set(d, semantics::Infinity());
  auto low = infinity;
  auto high = hn::Neg(infinity);
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto key = hn::LoadU(d, keys + i);
    low = hn::Min(low, hn::IfThenElse(hn::Eq(key, hn::Neg(infinity)), infinity, key));  // padding
    high = hn::Max(high, key);
  }
  return {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
}

// Whether keys lie in [low, high], both as keys of the total order. No element is -0, the value of
// the key below +0: as an end it would stand for +0 as well.
class KeysWithin {
 public:
  KeysWithin(uint32_t low, uint32_t high)
      : low_(hn::Set(F32(), semantics::ValueOfKey(low))),
        end_(hn::Set(F32(), semantics::ValueOfKey(high + 1))) {}

  HWY_INLINE hn::Mask<F32> operator()(VecF32 keys) const {
    return hn::And(hn::Ge(keys, low_), hn::Lt(keys, end_));
  }

 private:
  VecF32 low_;
  VecF32 end_;
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
