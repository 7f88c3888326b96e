// A filter of elements that cannot be kept, without the order.
//
// By mass: if an element of weight w is kept, the mass strictly before it is below the target, so
// it and its successors hold more than Z - target. Those are at most n elements and none weighs
// more than w: w * n > Z - target. (J. Rudolph's (1 - p) / (n - 1), in integers.) The boundary's
// weight passes, so everything from the boundary on does.
//
// By count every element measures 1 and none can be excluded by it. But of k or more disjoint
// groups each holds an element that reaches the least of the groups' maxima, so the k-th largest
// does too.
//
// Masses in any order say nothing about the keys. But by Markov's inequality the elements with keys
// at least t below 0 hold at most S / t, S = sum(w * |key|): when that is Z - target or less, the
// others hold the target, and none of those with |key| >= t is kept.
#if defined(SLUICE_RESEARCH_ALGORITHMS_FILTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_FILTER_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_FILTER_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_FILTER_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <Measure kMeasure>
class CandidateFilter {
 public:
  CandidateFilter(const Elements& list, uint64_t target, const Scratch& scratch, SelectWork& work) {
    if constexpr (kMeasure == Measure::kMass) {
      const uint64_t bound = (list.mass - target) / list.size;
      least_ =
          static_cast<float>(bound);  // keep what is above, and nothing wrong if it rounds down
      if (static_cast<uint64_t>(least_) > bound) {
        least_ = semantics::FloatOf(semantics::BitsOf(least_) - 1);
      }
    } else if constexpr (kMeasure == Measure::kCount) {
      least_ = semantics::kLowestValue;
      LookAtGroups(list, target, scratch, work);
    } else {
      least_ = semantics::kLowestValue;
      if (target < list.mass) LookAtDistances(list, target, work);
    }
  }

  HWY_INLINE hn::Mask<F32> operator()(VecF32 keys, VecF32 weights) const {
    const F32 d;
    const auto least = hn::Set(d, least_);
    return kMeasure == Measure::kMass ? hn::Gt(weights, least) : hn::Ge(keys, least);
  }

 private:
  // Group g is the elements g, g + groups, g + 2 groups, ...
  void LookAtGroups(const Elements& list, uint64_t target, const Scratch& scratch,
                    SelectWork& work) {
    const F32 d;
    const size_t lanes = hn::Lanes(d);
    if (target > list.size / 2) return;
    const size_t groups = (static_cast<size_t>(target) + lanes - 1) / lanes * lanes;
    if (groups > list.size / 2) return;
    float* maxima = scratch.Keys();
    for (size_t g = 0; g < groups; g += lanes) {
      hn::StoreU(hn::LoadU(d, list.keys + g), d, maxima + g);
    }
    size_t first = groups;
    for (; first + groups <= list.size; first += groups) {
      for (size_t g = 0; g < groups; g += lanes) {
        const auto key = hn::LoadU(d, list.keys + first + g);
        hn::StoreU(hn::Max(key, hn::LoadU(d, maxima + g)), d, maxima + g);
      }
    }
    least_ = RangeOf(maxima, groups).low;
    work.elements_read += static_cast<int64_t>(first);
  }

  void LookAtDistances(const Elements& list, uint64_t target, SelectWork& work) {
    const F32 d;
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < list.size; i += hn::Lanes(d)) {
      const auto key = hn::LoadU(d, list.keys + i);
      const auto weight = hn::LoadU(d, list.weights + i);
      const auto is_element = hn::Gt(key, hn::Set(d, -semantics::Infinity()));
      sum = hn::MulAdd(hn::IfThenElseZero(is_element, hn::Abs(key)), weight, sum);
    }
    work.elements_read += static_cast<int64_t>(list.size);
    // At worst 2^20 additions to a lane, each off by 2^-24: together by less than 1/15 of the sum.
    const double most = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum))) * 1.07;
    const double distance = most / static_cast<double>(list.mass - target);
    if (distance < 0x1p60) least_ = static_cast<float>(-distance * 1.0001 - 1.0);
  }

  float least_;  // weight or key
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
