// The exact mass of a part of a row.
#include "semantics/weight.h"

#if defined(SLUICE_SELECT_WEIGH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_WEIGH_INL_H_
#undef SLUICE_SELECT_WEIGH_INL_H_
#else
#define SLUICE_SELECT_WEIGH_INL_H_
#endif

#include "select/row_pass-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

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
