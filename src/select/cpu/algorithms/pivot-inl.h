// Qrita (2026) on a CPU: three pivots a pass, compared with vectors, and exact sums of what reaches
// each of them. The bracket around the boundary shrinks to between two neighbours of them.
//
// The first pivots come from the mean and the deviation of a sample: by count as if the body were
// Gaussian; by mass as if the body's mass were, with what lies outside of the sample's share known
// from the exact mass. Then the elements in the bracket are moved together, and the next pivots are
// its quartiles: of the values, and after a pass that left more than half of the elements, of the
// order keys, of which 16 passes are enough for any list. The bracket always ends at elements of
// the list, so ties are found as a bracket of one value, and counted.
#include <algorithm>

#if defined(SLUICE_SELECT_CPU_ALGORITHMS_PIVOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ALGORITHMS_PIVOT_INL_H_
#undef SLUICE_SELECT_CPU_ALGORITHMS_PIVOT_INL_H_
#else
#define SLUICE_SELECT_CPU_ALGORITHMS_PIVOT_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"
#include "select/cpu/guess-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

constexpr size_t kPivots = 3;
struct Pivots {
  float value[kPivots];  // ascending
};

inline Pivots QuartilesOfValues(const KeyRange& range) {
  const float step = range.high * 0.25f - range.low * 0.25f;  // as a difference it may overflow
  return {{range.low + step, range.low * 0.5f + range.high * 0.5f, range.high - step}};
}

inline Pivots QuartilesOfKeys(const KeyRange& range) {
  const uint32_t low = semantics::OrderKey(range.low);
  const uint32_t width = semantics::OrderKey(range.high) - low;
  auto at = [&](uint32_t offset) { return semantics::ValueOfKey(low + offset); };
  return {{at(width / 4 + 1), at(width / 2 + 1), at(width - width / 4)}};
}

// Spread over the list: vector v lies at v * step.
template <Measure kMeasure>
Pivots PivotsFromSample(const Elements& list, const KeyRange& range, uint64_t target) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kVectors = SmallSample::kVectors;
  if (list.size < 4 * kVectors * lanes) return QuartilesOfValues(range);
  SmallSample sample;
  sample.size = kVectors * lanes;
  const size_t step = (list.size - lanes) / (kVectors - 1);
  auto mass = hn::Zero(d), moment = mass, second = mass;
  for (size_t v = 0; v < kVectors; ++v) {
    const auto key = hn::LoadU(d, list.keys + v * step);
    hn::Store(key, d, sample.x + v * lanes);
    if constexpr (kMeasure != Measure::kCount) {
      const auto weight = hn::LoadU(d, list.weights + v * step);
      mass = hn::Add(mass, weight);
      moment = hn::MulAdd(weight, key, moment);
      second = hn::MulAdd(hn::Mul(weight, key), key, second);
    }
  }
  const Body body = BodyOf(sample);
  if (!body.is_known) return QuartilesOfValues(range);
  const float size = static_cast<float>(list.size);
  auto of_count = [&](float count) {
    return body.mean + body.deviation * UpperQuantile(std::clamp(count / size, 1e-7f, 1 - 1e-7f));
  };
  if constexpr (kMeasure == Measure::kCount) {
    const float k = static_cast<float>(target);
    const float slack = 0.15f * k + 40.0f;
    return {{of_count(k + slack), of_count(k), of_count(k - slack)}};
  }
  const float sampled = hn::GetLane(hn::SumOfLanes(d, mass));
  const float total = static_cast<float>(list.mass);
  const float scaled = sampled * (size / static_cast<float>(sample.size));
  const float inner = std::min(total, scaled);
  const float share = (static_cast<float>(target) - (total - inner)) / inner;
  const Pivots outliers{{of_count(1024.0f), of_count(256.0f), of_count(32.0f)}};
  if (!(share > 0.0f && sampled > 0.0f)) return outliers;
  const float mean = hn::GetLane(hn::SumOfLanes(d, moment)) / sampled;
  const float variance = hn::GetLane(hn::SumOfLanes(d, second)) / sampled - mean * mean;
  const float deviation = variance > 0.0f ? std::sqrt(variance) : 0.0f;
  auto of_mass = [&](float part) {
    return mean + deviation * UpperQuantile(std::clamp(part, 1e-6f, 1 - 1e-6f));
  };
  // The more of the mass lies outside of the sample, the less the sample says.
  const float slack = 0.06f + 0.15f * (1.0f - inner / total);
  return {{of_mass(share + slack), of_mass(share - slack), outliers.value[1]}};
}

// Between the ends of the range, so that each pivot parts the list, and in ascending order.
inline void MakePivotsUseful(Pivots& pivots, const KeyRange& range) {
  const uint32_t low = semantics::OrderKey(range.low);
  const float least = semantics::ValueOfKey(low + 1) + 0.0f;
  for (float& pivot : pivots.value) {
    if (!(pivot >= least)) pivot = least;  // NaN too
    if (pivot > range.high) pivot = range.high;
  }
  std::sort(pivots.value, pivots.value + kPivots);
}

template <Measure kMeasure>
Boundary FindByPivots(const Elements& list, uint64_t target, const Scratch& scratch,
                      SelectWork& work) {
  const F32 d;
  const float* keys = list.keys;  // the elements in the bracket
  const float* weights = list.weights;
  size_t size = list.size;
  KeyRange range = RangeOf(keys, size);
  work.elements_read += static_cast<int64_t>(size);
  Boundary found{};
  bool by_value = true;
  while (range.low < range.high) {
    Pivots pivots = keys == list.keys ? PivotsFromSample<kMeasure>(list, range, target)
                    : by_value        ? QuartilesOfValues(range)
                                      : QuartilesOfKeys(range);
    MakePivotsUseful(pivots, range);
    const auto pivot0 = hn::Set(d, pivots.value[0]);
    const auto pivot1 = hn::Set(d, pivots.value[1]);
    const auto pivot2 = hn::Set(d, pivots.value[2]);
    Tally<kMeasure> reach[kPivots];
    ForEachVector(
        size,
        [&](size_t i) HWY_ATTR {
          const auto key = hn::LoadU(d, keys + i);
          const auto weight = WeightsAt<kMeasure>(weights, i);
          reach[0].Add(hn::Ge(key, pivot0), weight);
          reach[1].Add(hn::Ge(key, pivot1), weight);
          reach[2].Add(hn::Ge(key, pivot2), weight);
        },
        [&]() HWY_ATTR {
          for (Tally<kMeasure>& tally : reach) tally.EndBlock();
        });

    // The boundary lies from the last pivot on that the target is reached at, below the next one.
    const uint64_t known = MeasureAbove<kMeasure>(found);
    size_t next = 0;
    while (next < kPivots && known + reach[next].measure() >= target) ++next;
    const auto low = hn::Set(d, next > 0 ? pivots.value[next - 1] : range.low);
    const auto end = hn::Set(d, next < kPivots ? pivots.value[next] : semantics::Infinity());
    if (next < kPivots) {
      found.above += reach[next].count();
      found.mass_above += reach[next].mass();
    }
    const size_t left = Compact<kMeasure>(
        keys, weights, size, scratch.Keys(), scratch.Weights(),
        [&](VecF32 key, VecF32) HWY_ATTR { return hn::And(hn::Ge(key, low), hn::Lt(key, end)); });
    work.elements_read += static_cast<int64_t>(2 * size);
    by_value = left <= size / 2;
    keys = scratch.Keys();
    weights = scratch.Weights();
    size = left;
    range = RangeOf(keys, size);
    work.elements_read += static_cast<int64_t>(size);
  }
  found.value = range.low;
  found.ties = static_cast<int64_t>(size);
  return found;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
