// Guesses from 64 vectors spread over the row. They cost time when they are wrong, never the
// answer.
#include <cmath>

#include "semantics/widen.h"

#if defined(SLUICE_SELECT_GUESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_GUESS_INL_H_
#undef SLUICE_SELECT_GUESS_INL_H_
#else
#define SLUICE_SELECT_GUESS_INL_H_
#endif

#include "select/candidates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

constexpr float kLowestFinite = -0x1.fffffep+127f;

constexpr size_t kSampleVectors = 64;
struct RowSample {
  HWY_ALIGN float x[kSampleVectors * HWY_MAX_BYTES / sizeof(float)];
  size_t size;  // 0 when the row is too short to be sampled
};

template <class Read>
void TakeSample(const semantics::Row& row, RowSample& sample) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  sample.size = size < kSampleVectors * lanes ? 0 : kSampleVectors * lanes;
  if (sample.size == 0) return;
  const size_t step = (size - lanes) / (kSampleVectors - 1);
  for (size_t v = 0; v < kSampleVectors; ++v) {
    hn::Store(Read::At(row.data, v * step), d, sample.x + v * lanes);
  }
}

// Mean and standard deviation of the row's body, from 64 vectors spread over it; three rounds drop
// what is further than 2.5 deviations: outliers above are what we look for, and unused vocabulary
// entries far below would widen the deviation.
struct Body {
  bool is_known;  // enough finite elements were seen
  float mean;
  float deviation;
};

inline Body BodyOf(const RowSample& sample) {
  const F32 d;
  if (sample.size == 0) return {false, 0.0f, 0.0f};
  float low = kLowestFinite;
  float high = -kLowestFinite;
  Body body{false, 0.0f, 0.0f};
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
    if (n < 32.0f) return {false, 0.0f, 0.0f};
    body.mean = hn::GetLane(hn::SumOfLanes(d, sum)) / n;
    const float variance = hn::GetLane(hn::SumOfLanes(d, squares)) / n - body.mean * body.mean;
    body.deviation = variance > 0.0f ? std::sqrt(variance) : 0.0f;
    low = body.mean - 2.5f * body.deviation;
    high = body.mean + 2.5f * body.deviation;
  }
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

// A threshold that about `aim` elements reach; the lowest finite value when nothing is known.
template <class Read>
float GuessThreshold(const semantics::Row& row, float aim) {
  const float share = aim / static_cast<float>(row.size);
  if (!(share < 0.75f)) return kLowestFinite;
  RowSample sample;
  TakeSample<Read>(row, sample);
  const Body body = BodyOf(sample);
  return body.is_known ? body.mean + body.deviation * UpperQuantile(share) : kLowestFinite;
}

// The value at which the sampled elements below `limit` hold about this share of their mass.
inline float SampledMassQuantile(const RowSample& sample, float limit, float max, float scale,
                                 double share) {
  const F32 d;
  auto mass_from = [&](float value) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
      const auto x = hn::Load(d, sample.x + i);
      const auto inside = hn::And(hn::Ge(x, hn::Set(d, value)), hn::Lt(x, hn::Set(d, limit)));
      sum =
          hn::Add(sum, hn::IfThenElseZero(inside, Weights(x, hn::Set(d, max), hn::Set(d, scale))));
    }
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  };
  const double wanted = share * mass_from(kLowestFinite);
  return LargestValue(kLowestFinite, limit,
                      [&](float value) { return mass_from(value) >= wanted; });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
