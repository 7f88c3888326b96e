// The weight of semantics/weight.h on vectors, bit for bit, and exact sums of weights.
//
// A weight has 24 significant bits and is at most 2^40, so it is exact in fp32, and a sum of up to
// 2^13 of them is exact in fp64; sums are moved to 64-bit integers before that.
#include "semantics/weight.h"

#if defined(SLUICE_SELECT_WEIGH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_WEIGH_INL_H_
#undef SLUICE_SELECT_WEIGH_INL_H_
#else
#define SLUICE_SELECT_WEIGH_INL_H_
#endif

#include "select/row_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Weights as fp32 integers. x is not NaN.
inline VecF32 Weights(VecF32 x, VecF32 max, VecF32 scale) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto t = hn::Mul(hn::Sub(x, max), scale);
  const auto n = hn::Floor(t);
  const auto f = hn::Sub(t, n);
  auto r = hn::MulAdd(hn::Set(d, 0x1.e974fap-10f), f, hn::Set(d, 0x1.277856p-7f));
  r = hn::MulAdd(r, f, hn::Set(d, 0x1.c91ce6p-5f));
  r = hn::MulAdd(r, f, hn::Set(d, 0x1.ebdb56p-3f));
  r = hn::MulAdd(r, f, hn::Set(d, 0x1.62e4bap-1f));
  r = hn::MulAdd(r, f, hn::Set(d, 0x1p+0f));
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127 + 40));
  const auto w = hn::Floor(hn::Mul(r, hn::BitCast(d, hn::ShiftLeft<23>(exponent))));
  return hn::IfThenElseZero(hn::Ge(t, hn::Set(d, -40.0f)), w);
}

// The exact mass of the elements below a threshold, one whole row. NaN and -inf weigh nothing.
template <class Read>
uint64_t MassBelow(const semantics::Row& row, float threshold, float max, float scale) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, threshold);
  const auto vmax = hn::Set(d, max);
  const auto vscale = hn::Set(d, scale);
  // Each block adds at most 2 * 1024 weights below 2^40 to a lane: exact in fp64.
  constexpr size_t kBlockVectors = 1024;
  const size_t size = static_cast<size_t>(row.size);
  uint64_t mass = 0;
  size_t i = 0;
  while (i + lanes <= size) {
    const size_t vectors = HWY_MIN((size - i) / lanes, kBlockVectors);
    auto low = hn::Zero(dd), high = hn::Zero(dd);
    for (size_t v = 0; v < vectors; ++v, i += lanes) {
      const auto x = Read::At(row.data, i);
      const auto w = hn::IfThenElseZero(hn::Lt(x, limit), Weights(x, vmax, vscale));
      const hn::Half<F32> half;
      low = hn::Add(low, hn::PromoteTo(dd, hn::LowerHalf(half, w)));
      high = hn::Add(high, hn::PromoteTo(dd, hn::UpperHalf(half, w)));
    }
    HWY_ALIGN double sums[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(hn::Add(low, high), dd, sums);
    for (size_t lane = 0; lane < hn::Lanes(dd); ++lane) mass += static_cast<uint64_t>(sums[lane]);
  }
  for (; i < size; ++i) {
    const float x = row[static_cast<int64_t>(i)];
    if (x < threshold) mass += semantics::Weight(x, max, scale);
  }
  return mass;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
