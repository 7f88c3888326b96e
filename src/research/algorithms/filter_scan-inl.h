// Drop what cannot be kept, then take the largest key with all its ties out of the rest, again and
// again (J. Rudolph, 2023). When the scans have read as much as 32 lists the rest is sorted, so
// that no row takes a quadratic number of steps.
//
// An element that holds more than half of the remaining mass is the largest, and alone: the scan
// for the largest ends there.
#if defined(SLUICE_RESEARCH_ALGORITHMS_FILTER_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_RESEARCH_ALGORITHMS_FILTER_SCAN_INL_H_
#undef SLUICE_RESEARCH_ALGORITHMS_FILTER_SCAN_INL_H_
#else
#define SLUICE_RESEARCH_ALGORITHMS_FILTER_SCAN_INL_H_
#endif

#include "research/algorithms/filter_sort-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The elements that the filter passes and no scan has taken yet.
struct ScanList {
  float* keys;
  float* weights;
  size_t size;
  uint64_t mass;  // 0 with Measure::kCount
};

// Moves the elements that belongs(keys, weights) marks from one place to another, which may be the
// same, and tallies those that counts(keys) marks.
template <Measure kMeasure, class Belongs, class Counts>
HWY_INLINE Tally<kMeasure> MoveAndTally(const float* keys, const float* weights, size_t size,
                                        ScanList& to, Belongs belongs, Counts counts) {
  const F32 d;
  Tally<kMeasure> tally;
  size_t count = 0;
  ForEachVector(
      size,
      [&](size_t i) HWY_ATTR {
        const auto key = hn::LoadU(d, keys + i);
        const auto weight = WeightsAt<kMeasure>(weights, i);
        const auto mask = belongs(key, weight);
        tally.Add(counts(key, mask), weight);
        if constexpr (kMeasure != Measure::kCount) {
          CompressTo(d, weight, mask, to.weights + count);
        }
        count += CompressTo(d, key, mask, to.keys + count);
      },
      [&]() HWY_ATTR { tally.EndBlock(); });
  PadKeys(to.keys, count);
  to.size = count;
  return tally;
}

struct Largest {
  float key;
  size_t alone_at;  // the list's size unless it is known to be the only one
};

template <Measure kMeasure>
Largest ScanForLargest(const ScanList& list) {
  const F32 d;
  const auto half = hn::Set(d, static_cast<float>(list.mass / 2 + 1) * (1.0f + 0x1p-22f));
  auto largest = hn::Set(d, -semantics::Infinity());
  for (size_t i = 0; i < list.size; i += hn::Lanes(d)) {
    largest = hn::Max(largest, hn::LoadU(d, list.keys + i));
    if constexpr (kMeasure == Measure::kMass) {
      const intptr_t lane = hn::FindFirstTrue(d, hn::Ge(hn::LoadU(d, list.weights + i), half));
      const size_t at = i + static_cast<size_t>(lane);
      if (lane >= 0 && at < list.size) return {list.keys[at], at};
    }
  }
  return {hn::GetLane(hn::MaxOfLanes(d, largest)), list.size};
}

template <Measure kMeasure>
Boundary FindByFilterAndScan(const Elements& all, uint64_t target, const Scratch& scratch,
                             SelectWork& work) {
  const F32 d;
  const CandidateFilter<kMeasure> filter(all, target, scratch, work);
  ScanList list{scratch.Keys(), scratch.Weights(), 0, 0};
  list.mass = MoveAndTally<kMeasure>(
                  all.keys, all.weights, all.size, list,
                  [&](VecF32 key, VecF32 weight) HWY_ATTR { return filter(key, weight); },
                  [](VecF32, hn::Mask<F32> mask) HWY_ATTR { return mask; })
                  .mass();
  work.elements_read += static_cast<int64_t>(all.size);

  Boundary found{};
  const int64_t most_reads = work.elements_read + 32 * static_cast<int64_t>(all.size);
  while (work.elements_read < most_reads) {
    const Largest largest = ScanForLargest<kMeasure>(list);
    found.value = largest.key;
    uint64_t mass = 0;
    if (largest.alone_at < list.size) {
      work.elements_read += static_cast<int64_t>(largest.alone_at + 1);
      found.ties = 1;
      mass = static_cast<uint64_t>(list.weights[largest.alone_at]);
      --list.size;
      list.keys[largest.alone_at] = list.keys[list.size];
      list.weights[largest.alone_at] = list.weights[list.size];
      PadKeys(list.keys, list.size);
    } else {
      work.elements_read += static_cast<int64_t>(2 * list.size);
      const auto taken = hn::Set(d, largest.key);
      const auto padding = hn::Set(d, -semantics::Infinity());
      const Tally<kMeasure> ties = MoveAndTally<kMeasure>(
          list.keys, list.weights, list.size, list,
          [&](VecF32 key, VecF32)
              HWY_ATTR { return hn::And(hn::Lt(key, taken), hn::Gt(key, padding)); },
          [&](VecF32 key, hn::Mask<F32>) HWY_ATTR { return hn::Eq(key, taken); });
      found.ties = ties.count();
      mass = ties.mass();
    }
    const uint64_t measure = kMeasure == Measure::kCount ? static_cast<uint64_t>(found.ties) : mass;
    if (MeasureAbove<kMeasure>(found) + measure >= target) return found;
    found.above += found.ties;
    found.mass_above += mass;
    list.mass -= mass;
  }
  // The rest is what the filter passes below the last key that was taken out.
  const auto limit = hn::Set(d, found.value);
  auto* elements = scratch.As<Sortable<kMeasure>>();
  const size_t count =
      GatherSortables<kMeasure>(all, elements, [&](VecF32 key, VecF32 weight) HWY_ATTR {
        return hn::And(filter(key, weight), hn::Lt(key, limit));
      });
  work.elements_read += static_cast<int64_t>(all.size);
  return SortAndWalk<kMeasure>(elements, count, found, target, work);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
