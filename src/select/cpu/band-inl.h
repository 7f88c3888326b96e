// One pass over a row for exact masses, and for the elements of a band of values.
#if defined(SLUICE_SELECT_CPU_BAND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_BAND_INL_H_
#undef SLUICE_SELECT_CPU_BAND_INL_H_
#else
#define SLUICE_SELECT_CPU_BAND_INL_H_
#endif

#include "select/cpu/candidates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Elements from `limit` on take no part; NaN does not occur.
struct BandPass {
  uint64_t mass = 0;        // below the limit
  uint64_t mass_above = 0;  // between the band and the limit
  size_t above = 0;         // how many elements are
  size_t size = 0;          // of the band, with its values in x
};

// The band is [low, high], or [low, limit) when it reaches up to the limit. x has room for a row.
template <class Read, bool kReachesLimit>
BandPass PassBand(const semantics::Row& row, float low, float high, float limit,
                  const Weigher& weigher, float* x) {
  const F32 d;
  const Weigher weigh = weigher;
  const auto vlow = hn::Set(d, low), vhigh = hn::Set(d, high), vlimit = hn::Set(d, limit);
  BandPass pass;
  RowWeightSum mass, above;
  size_t size = 0;
  size_t count_above = 0;
  const auto see = [&](VecF32 v) HWY_ATTR {
    const auto is_below = hn::Lt(v, vlimit);
    const auto is_in = hn::And(hn::Ge(v, vlow), kReachesLimit ? is_below : hn::Le(v, vhigh));
    size += CompressTo(d, v, is_in, x + size);
    return hn::IfThenElseZero(is_below, weigh(v));
  };
  const auto above_band = [&](VecF32 v, VecF32 weights) HWY_ATTR {
    const auto is_above = hn::And(hn::Gt(v, vhigh), hn::Lt(v, vlimit));
    count_above += hn::CountTrue(d, is_above);
    return hn::IfThenElseZero(is_above, weights);
  };
  ForEachGroup<Read>(
      row, Padding::kMasked, RowWeightSum::kGroupsInBlock,
      [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
        const auto w0 = see(x0);
        const auto w1 = see(x1);
        const auto w2 = see(x2);
        const auto w3 = see(x3);
        mass.Add(w0, w1, w2, w3);
        if constexpr (!kReachesLimit) {
          above.Add(above_band(x0, w0), above_band(x1, w1), above_band(x2, w2), above_band(x3, w3));
        }
      },
      [&]() HWY_ATTR {
        mass.EndBlock();
        if constexpr (!kReachesLimit) above.EndBlock();
      });
  pass.mass = mass.Total();
  if constexpr (!kReachesLimit) pass.mass_above = above.Total();
  hn::StoreU(hn::Set(d, -semantics::Infinity()), d, x + size);
  pass.size = size;
  pass.above = count_above;
  return pass;
}

// The exact mass of the elements below `limit`.
template <class Read>
uint64_t MassBelow(const semantics::Row& row, float limit, const Weigher& weigher) {
  const F32 d;
  const Weigher weigh = weigher;
  const auto vlimit = hn::Set(d, limit);
  RowWeightSum mass;
  const auto weight = [&](VecF32 v)
                          HWY_ATTR { return hn::IfThenElseZero(hn::Lt(v, vlimit), weigh(v)); };
  ForEachGroup<Read>(
      row, Padding::kMasked, RowWeightSum::kGroupsInBlock,
      [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3)
          HWY_ATTR { mass.Add(weight(x0), weight(x1), weight(x2), weight(x3)); },
      [&]() HWY_ATTR { mass.EndBlock(); });
  return mass.Total();
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
