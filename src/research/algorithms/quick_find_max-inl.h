// In each round one loop over everything finds the largest key below the last one, with its ties:
// nothing is copied or moved (J. Rudolph, 2023). When the rounds have read as much as 64
// lists the rest is sorted, so that no row takes a quadratic number of steps.
//
// A round ends early at an element that holds more than half of the mass that is left below the
// last key: it is the largest, and alone.
#if defined(SLUICE_RESEARCH_ALGORITHMS_QUICK_FIND_MAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_QUICK_FIND_MAX_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_QUICK_FIND_MAX_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_QUICK_FIND_MAX_INL_H_
#endif

#include "research/algorithms/filter_sort-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

inline uint64_t MassOfKey(const Elements& list, float key) {
  const F32 d;
  Tally<Measure::kMass> tally;
  ForEachVector(
      list.size,
      [&](size_t i) HWY_ATTR {
        tally.Add(hn::Eq(hn::LoadU(d, list.keys + i), hn::Set(d, key)),
                  hn::LoadU(d, list.weights + i));
      },
      [&]() HWY_ATTR { tally.EndBlock(); });
  return tally.mass();
}

template <Measure kMeasure>
Boundary FindByQuickFindMax(const Elements& list, uint64_t target, const Scratch& scratch,
                            SelectWork& work) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto nothing = hn::Set(d, -semantics::Infinity());
  const CandidateFilter<kMeasure> filter(list, target, scratch, work);
  Boundary found{};
  found.value = semantics::Infinity();
  const int64_t most_reads = work.elements_read + 64 * static_cast<int64_t>(list.size);
  while (work.elements_read < most_reads) {
    const auto limit = hn::Set(d, found.value);
    const uint64_t rest = list.mass - found.mass_above;
    const auto half = hn::Set(d, static_cast<float>(rest / 2 + 1) * (1.0f + 0x1p-22f));
    // Each lane's largest key and how often the lane has seen it.
    auto largest = nothing;
    auto weight_of_largest = hn::Zero(d);
    auto ties = hn::Zero(di);
    float weight_of_next = 0.0f;
    Boundary next = found;
    size_t i = 0;
    for (; i < list.size; i += hn::Lanes(d)) {
      const auto key = hn::LoadU(d, list.keys + i);
      const auto weight = WeightsAt<kMeasure>(list.weights, i);
      const auto counts = hn::And(hn::Lt(key, limit), filter(key, weight));
      const auto candidate = hn::IfThenElse(counts, key, nothing);
      if constexpr (kMeasure == Measure::kMass) {
        const intptr_t lane = hn::FindFirstTrue(d, hn::And(counts, hn::Ge(weight, half)));
        if (lane >= 0) {
          i += static_cast<size_t>(lane);
          next.value = list.keys[i];
          next.ties = 1;
          weight_of_next = list.weights[i];
          break;
        }
      }
      const auto is_larger = hn::Gt(candidate, largest);
      weight_of_largest = hn::IfThenElse(is_larger, weight, weight_of_largest);
      const auto is_equal = hn::VecFromMask(di, hn::RebindMask(di, hn::Eq(candidate, largest)));
      ties = hn::IfThenElse(hn::RebindMask(di, is_larger), hn::Set(di, 1), hn::Sub(ties, is_equal));
      largest = hn::Max(largest, candidate);
    }
    work.elements_read += static_cast<int64_t>(HWY_MIN(i + 1, list.size));
    if (i >= list.size) {
      next.value = hn::GetLane(hn::MaxOfLanes(d, largest));
      const auto has_largest = hn::Eq(largest, hn::Set(d, next.value));
      next.ties = hn::GetLane(
          hn::SumOfLanes(di, hn::IfThenElseZero(hn::RebindMask(di, has_largest), ties)));
      weight_of_next =
          hn::GetLane(hn::MaxOfLanes(d, hn::IfThenElseZero(has_largest, weight_of_largest)));
    }
    uint64_t mass = 0;
    if constexpr (kMeasure == Measure::kMass) {  // elements of one key have one weight
      mass = static_cast<uint64_t>(weight_of_next) * static_cast<uint64_t>(next.ties);
    } else if constexpr (kMeasure == Measure::kMassInAnyOrder) {
      mass = MassOfKey(list, next.value);
      work.elements_read += static_cast<int64_t>(list.size);
    }
    const uint64_t measure = kMeasure == Measure::kCount ? static_cast<uint64_t>(next.ties) : mass;
    if (MeasureAbove<kMeasure>(found) + measure >= target) return next;
    found.value = next.value;
    found.above += next.ties;
    found.mass_above += mass;
  }
  const float limit = found.value;
  auto* elements = scratch.As<Sortable<kMeasure>>();
  const size_t count =
      GatherSortables<kMeasure>(list, elements, [&](VecF32 key, VecF32 weight) HWY_ATTR {
        return hn::And(filter(key, weight), hn::Lt(key, hn::Set(d, limit)));
      });
  work.elements_read += static_cast<int64_t>(list.size);
  return SortAndWalk<kMeasure>(elements, count, found, target, work);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
