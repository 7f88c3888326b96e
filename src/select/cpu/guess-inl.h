// Guesses from vectors spread over the row. They cost time when they are wrong, never the answer.
#include <cmath>

#if defined(SLUICE_SELECT_CPU_GUESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_GUESS_INL_H_
#undef SLUICE_SELECT_CPU_GUESS_INL_H_
#else
#define SLUICE_SELECT_CPU_GUESS_INL_H_
#endif

#include "select/cpu/narrow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <size_t kSampleVectors>
struct RowSample {
  static constexpr size_t kVectors = kSampleVectors;
  HWY_ALIGN float x[kVectors * HWY_MAX_BYTES / sizeof(float)];
  size_t size = 0;  // 0 when the row is too short to be sampled

  template <class Read>
  void Take(const semantics::Row& row) {
    const F32 d;
    const size_t lanes = hn::Lanes(d);
    const size_t row_size = static_cast<size_t>(row.size);
    if (row_size < kVectors * lanes) return;
    size = kVectors * lanes;
    const auto* data = static_cast<const typename Read::Element*>(row.data);
    const size_t step = (row_size - lanes) / (kVectors - 1);
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(Read::At(data + v * step, 0), d, x + v * lanes);
    }
  }
};
using SmallSample = RowSample<64>;

// Mean and standard deviation of the row's body: three rounds drop what is further than 2.5
// deviations away. Outliers above are what we look for, and unused vocabulary entries far below
// would widen the deviation.
struct Body {
  bool is_known = false;  // enough finite elements were seen
  float mean = 0.0f;
  float deviation = 0.0f;
  float finite_share = 0.0f;  // of the row, not masked
};

inline Body BodyOf(const SmallSample& sample) {
  const F32 d;
  Body body;
  if (sample.size == 0) return body;
  float low = kLowestFinite;
  float high = -kLowestFinite;
  for (int round = 0; round < 4; ++round) {
    const auto vlow = hn::Set(d, low), vhigh = hn::Set(d, high);
    auto count = hn::Zero(d), sum = count, squares = count;
    for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
      const auto x = hn::Load(d, sample.x + i);
      const auto inside = hn::And(hn::Ge(x, vlow), hn::Le(x, vhigh));
      const auto kept = hn::IfThenElseZero(inside, x);
      count = hn::Add(count, hn::IfThenElseZero(inside, hn::Set(d, 1.0f)));
      sum = hn::Add(sum, kept);
      squares = hn::MulAdd(kept, kept, squares);
    }
    const float n = hn::GetLane(hn::SumOfLanes(d, count));
    if (n < 32.0f) return Body();
    if (round == 0) body.finite_share = n / static_cast<float>(sample.size);
    body.mean = hn::GetLane(hn::SumOfLanes(d, sum)) / n;
    const float variance = hn::GetLane(hn::SumOfLanes(d, squares)) / n - body.mean * body.mean;
    body.deviation = variance > 0.0f ? std::sqrt(variance) : 0.0f;
    low = body.mean - 2.5f * body.deviation;
    high = body.mean + 2.5f * body.deviation;
  }
  // A Gaussian has 0.938 of its deviation after these rounds have trimmed it.
  body.deviation *= 1.066f;
  body.is_known = body.deviation > 0.0f && body.deviation < 1e30f;
  return body;
}

// The value that a Gaussian exceeds with this probability (Abramowitz and Stegun 26.2.23, absolute
// error below 4.5e-4), in standard deviations.
inline float UpperQuantile(float probability) {
  const float q = probability < 0.5f ? probability : 1.0f - probability;
  const float t = std::sqrt(-2.0f * std::log(q));
  const float z = t - (2.515517f + t * (0.802853f + t * 0.010328f)) /
                          (1.0f + t * (1.432788f + t * (0.189269f + t * 0.001308f)));
  return probability < 0.5f ? z : -z;
}

// A threshold that about `aim` elements reach, as if the row's body were Gaussian; the lowest
// finite value when nothing is known.
inline float GaussianThreshold(const SmallSample& sample, int64_t row_size, float aim) {
  const Body body = BodyOf(sample);
  if (!body.is_known) return kLowestFinite;
  const float share = aim / (body.finite_share * static_cast<float>(row_size));
  return share < 0.75f ? body.mean + body.deviation * UpperQuantile(share) : kLowestFinite;
}

// A threshold that at least `k` elements reach, most likely, whatever the shape of the row.
inline float SampledThreshold(const SmallSample& sample, int64_t row_size, int64_t k) {
  if (sample.size == 0) return kLowestFinite;
  const F32 d;
  int64_t finite = 0;
  for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
    const auto x = hn::Load(d, sample.x + i);
    finite += static_cast<int64_t>(hn::CountTrue(d, hn::Ge(x, hn::Set(d, kLowestFinite))));
  }
  const double elements = static_cast<double>(row_size) * static_cast<double>(finite) /
                          static_cast<double>(sample.size);
  if (!(static_cast<double>(k) < elements)) return kLowestFinite;
  return SampledShares({sample.x, nullptr, sample.size}).Low(static_cast<double>(k) / elements);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
