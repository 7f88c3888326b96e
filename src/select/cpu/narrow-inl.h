// Where a running count or mass over the total order reaches a target: exact, on a list of values.
//
// A sample of the list suggests a bracket, one sweep counts exactly what lies above and inside it,
// and the part that holds the boundary is compacted. After a few rounds the rest is bisected.
#include <algorithm>
#include <cmath>

#include "semantics/order.h"

#if defined(SLUICE_SELECT_CPU_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_NARROW_INL_H_
#undef SLUICE_SELECT_CPU_NARROW_INL_H_
#else
#define SLUICE_SELECT_CPU_NARROW_INL_H_
#endif

#include "select/cpu/algorithms/boundary.h"
#include "select/cpu/candidates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Values, and what each counts for: its weight, or 1 where weights is null. Padded with -inf.
struct Measured {
  const float* x;
  const float* weights;
  size_t size;
};

struct Extent {
  uint64_t amount = 0;
  int64_t count = 0;
};

// Measures the elements above `value`, or from it on.
template <bool kByMass, bool kEqualToo>
Extent MeasureFrom(const Measured& list, float value) {
  const F32 d;
  const auto least = hn::Set(d, value);
  Extent extent;
  WeightSum sum;
  for (size_t i = 0; i < list.size;) {
    const size_t end = HWY_MIN(list.size, i + WeightSum::kMostVectors * hn::Lanes(d));
    for (; i < end; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, list.x + i);
      const auto mask = kEqualToo ? hn::Ge(x, least) : hn::Gt(x, least);  // never the padding
      extent.count += static_cast<int64_t>(hn::CountTrue(d, mask));
      if constexpr (kByMass) sum.Add(hn::IfThenElseZero(mask, hn::LoadU(d, list.weights + i)));
    }
    if constexpr (kByMass) extent.amount += sum.Total();
  }
  if constexpr (!kByMass) extent.amount = static_cast<uint64_t>(extent.count);
  return extent;
}

template <bool kByMass>
Extent MeasureAll(const Measured& list) {
  return MeasureFrom<kByMass, true>(list, kLowestFinite);
}

// The largest value in [low, high] for which `holds`, which is true up to some value and false
// above, by bisection over order-preserving keys; `low` is one for which it holds.
template <typename Predicate>
HWY_INLINE float LargestValue(float low, float high, const Predicate& holds) {
  uint32_t low_key = semantics::OrderKey(low);
  uint32_t high_key = semantics::OrderKey(high);
  while (low_key < high_key) {
    const uint32_t middle = high_key - (high_key - low_key) / 2;
    if (holds(semantics::ValueOfKey(middle))) {
      low_key = middle;
    } else {
      high_key = middle - 1;
    }
  }
  return semantics::ValueOfKey(low_key);
}

// Where, in a sample, the share of what is counted from the largest value on passes some share.
// sample: padded with -inf; weights as in Measured, approximate.
class SampledShares {
 public:
  explicit SampledShares(const Measured& sample) : sample_(sample) {
    const F32 d;
    auto sum = hn::Zero(d), squares = hn::Zero(d), max = hn::Set(d, -semantics::Infinity());
    for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, sample.x + i);
      const auto w = WeightAt(i, x);
      max = hn::Max(max, x);
      sum = hn::Add(sum, w);
      squares = hn::MulAdd(w, w, squares);
    }
    total_ = hn::GetLane(hn::SumOfLanes(d, sum));
    squares_ = hn::GetLane(hn::SumOfLanes(d, squares));
    min_ = MinOf(sample.x, sample.size);
    max_ = hn::GetLane(hn::MaxOfLanes(d, max));
  }

  // A value that lies, most likely (three standard errors), below the place; the lowest finite one
  // when the sample does not say.
  float Low(double share) const {
    const double safe = share + Error(share);
    return total_ > 0.0f && safe < 1.0 ? ValueAt(safe) : kLowestFinite;
  }
  // Above it, or +inf.
  float High(double share) const {
    const double safe = share - Error(share);
    return total_ > 0.0f && safe > 0.0 ? ValueAt(safe) : semantics::Infinity();
  }

  // Nothing but one value was seen.
  bool IsFlat() const { return min_ == max_; }

 private:
  VecF32 WeightAt(size_t i, VecF32 x) const {
    const F32 d;
    const auto one =
        sample_.weights == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, sample_.weights + i);
    return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, kLowestFinite)), one);
  }

  double Error(double share) const {
    const double variance = std::max(0.01, share * (1.0 - share));
    return 3.0 * std::sqrt(variance * static_cast<double>(squares_)) / static_cast<double>(total_);
  }

  // Twelve halvings of the range of values: a guess needs no more.
  float ValueAt(double share) const {
    const F32 d;
    const float wanted = static_cast<float>(share) * total_;
    float low = min_;
    float high = max_;
    for (int round = 0; round < 12 && low < high; ++round) {
      const float middle = low + 0.5f * (high - low);
      const auto least = hn::Set(d, middle);
      auto from = hn::Zero(d);
      for (size_t i = 0; i < sample_.size; i += hn::Lanes(d)) {
        const auto x = hn::LoadU(d, sample_.x + i);
        from = hn::Add(from, hn::IfThenElseZero(hn::Ge(x, least), WeightAt(i, x)));
      }
      (hn::GetLane(hn::SumOfLanes(d, from)) >= wanted ? low : high) = middle;
    }
    return low;
  }

  const Measured sample_;
  float total_;
  float squares_;
  float min_;
  float max_;
};

struct Bracket {
  float low;
  float high;
};

// Drops elements so light that all of them together do not matter: the others still hold the
// target. On peaked rows that is nearly everything.
inline Measured WithoutLightOnes(const Measured& list, uint64_t all, uint64_t target,
                                 float* scratch_x, float* scratch_weights) {
  const F32 d;
  // Rounded down more than fp32 could round it up.
  const double bound =
      static_cast<double>(all - target) / static_cast<double>(list.size) * (1.0 - 1e-6);
  const auto vbound = hn::Set(d, static_cast<float>(bound));
  size_t kept = 0;
  for (size_t i = 0; i < list.size; i += hn::Lanes(d)) {
    const auto w = hn::LoadU(d, list.weights + i);
    const auto mask = hn::Gt(w, vbound);  // never the padding, which weighs nothing
    CompressTo(d, hn::LoadU(d, list.x + i), mask, scratch_x + kept);
    kept += CompressTo(d, w, mask, scratch_weights + kept);
  }
  hn::StoreU(hn::Set(d, -semantics::Infinity()), d, scratch_x + kept);
  hn::StoreU(hn::Zero(d), d, scratch_weights + kept);
  return {scratch_x, scratch_weights, kept};
}

inline bool AreAllEqual(const Measured& list) {
  return MinOf(list.x, list.size) == MaxOf(list.x, list.size);
}

// The list holds `all`, which is at least the target. scratch_x, scratch_weights: as long as the
// list, which is left as it is.
template <bool kByMass>
Boundary NarrowToBoundary(Measured list, uint64_t all, uint64_t target, float* scratch_x,
                          float* scratch_weights) {
  const F32 d;
  constexpr size_t kSmall = 256;
  constexpr size_t kFewEnough = 4096;  // to look for light ones; longer lists have none
  constexpr size_t kSampleVectors = 8;
  Boundary found{0.0f, 0, 0, 0};
  target = HWY_MAX(target, uint64_t{1});  // the first element is always kept
  if constexpr (kByMass) {
    if (all > target && list.size <= kFewEnough) {
      list = WithoutLightOnes(list, all, target, scratch_x, scratch_weights);
      if (list.size > kSmall) all = MeasureAll<true>(list).amount;
    }
  }
  while (list.size > kSmall) {
    HWY_ALIGN float sample_x[kSampleVectors * HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN float sample_weights[kSampleVectors * HWY_MAX_BYTES / sizeof(float)];
    const size_t step = (list.size - hn::Lanes(d)) / (kSampleVectors - 1);
    for (size_t v = 0; v < kSampleVectors; ++v) {
      hn::Store(hn::LoadU(d, list.x + v * step), d, sample_x + v * hn::Lanes(d));
      if constexpr (kByMass) {
        hn::Store(hn::LoadU(d, list.weights + v * step), d, sample_weights + v * hn::Lanes(d));
      }
    }
    const double share = static_cast<double>(target - found.mass_above) /
                         static_cast<double>(HWY_MAX(all, uint64_t{1}));
    const SampledShares shares(
        {sample_x, kByMass ? sample_weights : nullptr, kSampleVectors * hn::Lanes(d)});
    if (shares.IsFlat() && AreAllEqual(list)) break;  // so many ties that a bracket would cost more
    const Bracket bracket{shares.Low(share), shares.High(share)};
    const Extent above = MeasureFrom<kByMass, false>(list, bracket.high);
    const Extent from = MeasureFrom<kByMass, true>(list, bracket.low);
    const bool is_above = found.mass_above + above.amount >= target;
    const bool is_below = found.mass_above + from.amount < target;
    if (!is_above) {
      const Extent passed = is_below ? from : above;
      found.mass_above += passed.amount;
      found.above += passed.count;
    }
    all = is_above ? above.amount : is_below ? all - from.amount : from.amount - above.amount;

    const auto low = hn::Set(d, bracket.low), high = hn::Set(d, bracket.high);
    const auto finite = hn::Set(d, kLowestFinite);
    size_t kept = 0;
    for (size_t i = 0; i < list.size; i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, list.x + i);
      const auto mask = is_above   ? hn::Gt(x, high)
                        : is_below ? hn::And(hn::Lt(x, low), hn::Ge(x, finite))
                                   : hn::And(hn::Ge(x, low), hn::Le(x, high));
      CompressTo(d, x, mask, scratch_x + kept);
      if constexpr (kByMass) {
        const auto w = hn::LoadU(d, list.weights + i);
        CompressTo(d, w, mask, scratch_weights + kept);
      }
      kept += hn::CountTrue(d, mask);
    }
    hn::StoreU(hn::Set(d, -semantics::Infinity()), d, scratch_x + kept);
    if constexpr (kByMass) hn::StoreU(hn::Zero(d), d, scratch_weights + kept);
    const bool has_shrunk = kept < list.size - list.size / 8;
    list = {scratch_x, kByMass ? scratch_weights : nullptr, kept};
    if (!has_shrunk) break;
  }
  found.value = MinOf(list.x, list.size);
  const float max = MaxOf(list.x, list.size);
  if (found.value == max) {
    found.ties = static_cast<int64_t>(list.size);
    return found;
  }
  found.value = LargestValue(found.value, max, [&](float value) HWY_ATTR {
    return found.mass_above + MeasureFrom<kByMass, true>(list, value).amount >= target;
  });
  const Extent above = MeasureFrom<kByMass, false>(list, found.value);
  found.ties = MeasureFrom<false, true>(list, found.value).count - above.count;
  found.mass_above += above.amount;
  found.above += above.count;
  return found;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
