// Vector passes over a list of values: the sums and thresholds that the rules of semantics/
// need.
#include "semantics/filters/top_n_sigma.h"
#include "semantics/filters/typical.h"

#if defined(SLUICE_SELECT_CPU_LIST_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_LIST_PASSES_INL_H_
#undef SLUICE_SELECT_CPU_LIST_PASSES_INL_H_
#else
#define SLUICE_SELECT_CPU_LIST_PASSES_INL_H_
#endif

#include "select/cpu/algorithms/elements-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// A row's values without the masked ones, as fp32 without -0, padded with -inf.
struct ListedRow {
  size_t size;
  float max;
  float checksum;  // NaN if the row holds one, or infinities of both signs
};

template <class Read>
ListedRow ListRow(const semantics::Row& row, float* values) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t end = static_cast<size_t>(row.size);
  const auto masked = hn::Set(d, -semantics::Infinity());
  auto max = masked;
  auto checksum = hn::Zero(d);
  ListedRow listed{0, -semantics::Infinity(), 0.0f};
  size_t i = 0;
  for (; i + lanes <= end; i += lanes) {
    const auto x = hn::Add(Read::At(row.data, i), hn::Zero(d));
    const auto present = hn::Gt(x, masked);
    checksum = hn::Add(checksum, x);
    max = hn::Max(max, x);
    listed.size += CompressTo(d, x, present, values + listed.size);
  }
  listed.max = hn::GetLane(hn::MaxOfLanes(d, max));
  listed.checksum = hn::GetLane(hn::SumOfLanes(d, checksum));
  for (; i < end; ++i) {
    const float x = Read::One(row.data, i) + 0.0f;
    listed.checksum += x;
    if (!(x > -semantics::Infinity())) continue;
    listed.max = x > listed.max ? x : listed.max;
    values[listed.size++] = x;
  }
  PadKeys(values, listed.size);
  return listed;
}

// The weights of a list's values, and their sum.
inline uint64_t WeighValues(const float* values, size_t size, float max, float scale,
                            float* weights) {
  const F32 d;
  const Weigher weigh(max, scale);
  ExactSum sum;
  ForEachVector(
      size,
      [&](size_t i) HWY_ATTR {
        const auto w = weigh(hn::LoadU(d, values + i));  // the padding weighs 0
        hn::StoreU(w, d, weights + i);
        sum.Add(w);
      },
      [&]() HWY_ATTR { sum.EndBlock(); });
  return sum.total();
}

// Number and mass of the values from `least` on, which is above -inf.
template <Measure kMeasure>
Tally<kMeasure> TallyFrom(const float* values, const float* weights, size_t size, float least) {
  const F32 d;
  const auto vleast = hn::Set(d, least);
  Tally<kMeasure> tally;
  ForEachVector(
      size,
      [&](size_t i) HWY_ATTR {
        tally.Add(hn::Ge(hn::LoadU(d, values + i), vleast), WeightsAt<kMeasure>(weights, i));
      },
      [&]() HWY_ATTR { tally.EndBlock(); });
  return tally;
}

// The least value from `least` on, +inf if there is none. least is above -inf.
inline float LeastFrom(const float* values, size_t size, float least) {
  const F32 d;
  const auto vleast = hn::Set(d, least);
  const auto infinity = hn::Set(d, semantics::Infinity());
  auto min = infinity;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + i);
    min = hn::Min(min, hn::IfThenElse(hn::Ge(x, vleast), x, infinity));
  }
  return hn::GetLane(hn::MinOfLanes(d, min));
}

// semantics::SigmaBound of the list.
inline uint64_t SigmaBoundOf(const float* values, size_t size, float max, float n_sigma) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const hn::Half<F32> half;
  const auto vmax = hn::Set(d, max);
  const auto none = hn::Set(d, -semantics::Infinity());
  uint64_t sum = 0;
  uint64_t squares = 0;
  auto sums = hn::Zero(dd), low = sums, high = sums;  // below 2^12 squares up to 2^40 a lane
  ForEachVector(
      size,
      [&](size_t i) HWY_ATTR {
        const auto x = hn::LoadU(d, values + i);
        const auto scaled = hn::Mul(hn::Sub(vmax, x), hn::Set(d, 0x1p12f));
        const auto e =
            hn::IfThenElseZero(hn::Gt(x, none), hn::Round(hn::Min(scaled, hn::Set(d, 0x1p20f))));
        const auto e0 = hn::PromoteTo(dd, hn::LowerHalf(half, e));
        const auto e1 = hn::PromoteTo(dd, hn::UpperHalf(half, e));
        sums = hn::Add(sums, hn::Add(e0, e1));
        low = hn::MulAdd(e0, e0, low);
        high = hn::MulAdd(e1, e1, high);
      },
      [&]() HWY_ATTR {
        HWY_ALIGN double lanes[3][HWY_MAX_BYTES / sizeof(double)];
        hn::Store(sums, dd, lanes[0]);
        hn::Store(low, dd, lanes[1]);
        hn::Store(high, dd, lanes[2]);
        for (size_t i = 0; i < hn::Lanes(dd); ++i) {
          sum += static_cast<uint64_t>(lanes[0][i]);
          squares += static_cast<uint64_t>(lanes[1][i]) + static_cast<uint64_t>(lanes[2][i]);
        }
        sums = low = high = hn::Zero(dd);
      });
  return semantics::SigmaBound(static_cast<uint64_t>(size), sum, squares, n_sigma);
}

// semantics::Surprise of values with a weight above 0, as fp32 integers up to 40 * 2^12.
inline VecF32 Surprises(VecF32 values, VecF32 max, VecF32 scale) {
  const F32 d;
  const auto t = hn::Mul(hn::Sub(values, max), scale);
  return hn::Round(hn::Mul(hn::Neg(t), hn::Set(d, 4096.0f)));
}

// h of typical: the mean surprise of the values with a weight above 0.
inline int64_t MeanSurprise(const float* values, const float* weights, size_t size, float max,
                            float scale) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const hn::Half<F32> half;
  const auto vmax = hn::Set(d, max);
  const auto vscale = hn::Set(d, scale);
  uint64_t weighted_surprise = 0;
  uint64_t mass = 0;
  auto products = hn::Zero(dd), masses = products;  // products are below 2^37
  ForEachVector(
      size,
      [&](size_t i) HWY_ATTR {
        const auto weight = hn::LoadU(d, weights + i);
        const auto w = hn::Floor(hn::Mul(weight, hn::Set(d, 0x1p-16f)));
        const auto a = hn::IfThenElseZero(hn::Gt(weight, hn::Zero(d)),
                                          Surprises(hn::LoadU(d, values + i), vmax, vscale));
        const auto w0 = hn::PromoteTo(dd, hn::LowerHalf(half, w));
        const auto w1 = hn::PromoteTo(dd, hn::UpperHalf(half, w));
        const auto a0 = hn::PromoteTo(dd, hn::LowerHalf(half, a));
        const auto a1 = hn::PromoteTo(dd, hn::UpperHalf(half, a));
        products = hn::MulAdd(w1, a1, hn::MulAdd(w0, a0, products));
        masses = hn::Add(masses, hn::Add(w0, w1));
      },
      [&]() HWY_ATTR {
        HWY_ALIGN double lanes[2][HWY_MAX_BYTES / sizeof(double)];
        hn::Store(products, dd, lanes[0]);
        hn::Store(masses, dd, lanes[1]);
        for (size_t i = 0; i < hn::Lanes(dd); ++i) {
          weighted_surprise += static_cast<uint64_t>(lanes[0][i]);
          mass += static_cast<uint64_t>(lanes[1][i]);
        }
        products = masses = hn::Zero(dd);
      });
  return static_cast<int64_t>(weighted_surprise / mass);
}

// How typical each value is: -|a - h|, so that the most typical ones are the largest.
inline void TypicalKeys(const float* values, size_t size, float max, float scale, int64_t mean,
                        float* keys) {
  const F32 d;
  const auto vmean = hn::Set(d, static_cast<float>(mean));  // at most 40 * 2^12
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto a = Surprises(hn::LoadU(d, values + i), hn::Set(d, max), hn::Set(d, scale));
    const auto key = hn::Neg(hn::Abs(hn::Sub(a, vmean)));
    hn::StoreU(hn::Add(key, hn::Zero(d)), d, keys + i);  // never -0
  }
  PadKeys(keys, size);
}

// The range of the values with keys that reach `least`, of which there are some.
inline KeyRange RangeOfTypical(const float* values, const float* keys, size_t size, float least) {
  const F32 d;
  const auto infinity = hn::Set(d, semantics::Infinity());
  auto low = infinity;
  auto high = hn::Neg(infinity);
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + i);
    const auto is_kept = hn::Ge(hn::LoadU(d, keys + i), hn::Set(d, least));  // never the padding
    low = hn::Min(low, hn::IfThenElse(is_kept, x, infinity));
    high = hn::Max(high, hn::IfThenElse(is_kept, x, hn::Neg(infinity)));
  }
  return {hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high))};
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
