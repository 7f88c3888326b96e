// Drop what cannot be kept, then take the largest key with all its ties out of the rest, again and
// again (J. Rudolph, 2023). When the scans have read as much as 32 lists the rest is sorted, so
// that no row takes a quadratic number of steps.
//
// An element that holds more than half of the remaining mass is the largest, and alone: the scan
// for the largest ends there.
#if defined(SLUICE_SELECT_ALGORITHMS_FILTER_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_ALGORITHMS_FILTER_SCAN_INL_H_
#undef SLUICE_SELECT_ALGORITHMS_FILTER_SCAN_INL_H_
#else
#define SLUICE_SELECT_ALGORITHMS_FILTER_SCAN_INL_H_
#endif

#include "select/algorithms/filter_sort-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <Measure kMeasure>
Boundary FindByFilterAndScan(const Elements& list, uint64_t target, const Scratch& scratch,
                             SelectWork& work) {
  const F32 d;
  const CandidateFilter<kMeasure> filter(list, target, scratch, work);
  float* keys = scratch.Keys();
  float* weights = scratch.Weights();
  Tally<kMeasure> tally;
  size_t size = 0;
  ForEachVector(
      list.size,
      [&](size_t i) HWY_ATTR {
        const auto key = hn::LoadU(d, list.keys + i);
        const auto weight = WeightsAt<kMeasure>(list.weights, i);
        const auto mask = filter(key, weight);
        if (hn::AllFalse(d, mask)) return;
        // Padding weighs nothing and passes no filter.
        tally.Add(mask, weight);
        if constexpr (kMeasure != Measure::kCount)
          hn::CompressStore(weight, mask, d, weights + size);
        size += hn::CompressStore(key, mask, d, keys + size);
      },
      [&]() HWY_ATTR { tally.EndBlock(); });
  PadKeys(keys, size);
  work.elements_read += static_cast<int64_t>(list.size);

  uint64_t rest = tally.mass();
  Boundary found{};
  const int64_t most_reads = work.elements_read + 32 * static_cast<int64_t>(list.size);
  while (work.elements_read < most_reads) {
    auto largest = hn::Set(d, -semantics::Infinity());
    const auto half = hn::Set(d, static_cast<float>(rest / 2 + 1) * (1.0f + 0x1p-22f));
    size_t i = 0;
    bool is_alone = false;
    for (; i < size; i += hn::Lanes(d)) {
      largest = hn::Max(largest, hn::LoadU(d, keys + i));
      if constexpr (kMeasure == Measure::kMass) {
        const intptr_t lane = hn::FindFirstTrue(d, hn::Ge(hn::LoadU(d, weights + i), half));
        if (lane >= 0 && i + static_cast<size_t>(lane) < size) {
          i += static_cast<size_t>(lane);
          is_alone = true;
          break;
        }
      }
    }
    if (is_alone) {
      work.elements_read += static_cast<int64_t>(i + 1);
      const uint64_t mass = static_cast<uint64_t>(weights[i]);
      if (found.mass_above + mass >= target) {
        found.value = keys[i];
        found.ties = 1;
        return found;
      }
      --size;
      keys[i] = keys[size];
      weights[i] = weights[size];
      PadKeys(keys, size);
      found.above += 1;
      found.mass_above += mass;
      rest -= mass;
      continue;
    }
    const float value = hn::GetLane(hn::MaxOfLanes(d, largest));
    const auto taken = hn::Set(d, value);
    Tally<kMeasure> ties;
    size_t left = 0;
    ForEachVector(
        size,
        [&](size_t at) HWY_ATTR {
          const auto key = hn::LoadU(d, keys + at);
          const auto weight = WeightsAt<kMeasure>(weights, at);
          ties.Add(hn::Eq(key, taken), weight);
          const auto stays =
              hn::And(hn::Lt(key, taken), hn::Gt(key, hn::Set(d, -semantics::Infinity())));
          if constexpr (kMeasure != Measure::kCount) {
            hn::CompressStore(weight, stays, d, weights + left);
          }
          left += hn::CompressStore(key, stays, d, keys + left);
        },
        [&]() HWY_ATTR { ties.EndBlock(); });
    work.elements_read += static_cast<int64_t>(2 * size);
    if (MeasureAbove<kMeasure>(found) + ties.measure() >= target) {
      found.value = value;
      found.ties = ties.count();
      return found;
    }
    found.value = value;
    found.above += ties.count();
    found.mass_above += ties.mass();
    rest -= ties.mass();
    size = left;
    PadKeys(keys, size);
  }
  // What is left is what the filter passes below the last value that was taken out one by one.
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
