// The weight of semantics/weight.h on vectors, bit for bit, and exact sums of weights.
//
// A weight has 24 significant bits and is at most 2^40, so it is exact in fp32, and a sum of up to
// 2^13 of them is exact in fp64; sums are moved to 64-bit integers before that.
#include "semantics/weight.h"

#if defined(SLUICE_SUPPORT_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SUPPORT_WEIGHTS_INL_H_
#undef SLUICE_SUPPORT_WEIGHTS_INL_H_
#else
#define SLUICE_SUPPORT_WEIGHTS_INL_H_
#endif

#include "support/vectors-inl.h"

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

// An exact sum of vectors of weights. Total() at least once every kMostVectors.
class WeightSum {
 public:
  static constexpr size_t kMostVectors = 2048;

  WeightSum() : low_(hn::Zero(F64())), high_(hn::Zero(F64())) {}

  void Add(VecF32 weights) {
    const hn::Half<F32> half;
    low_ = hn::Add(low_, hn::PromoteTo(F64(), hn::LowerHalf(half, weights)));
    high_ = hn::Add(high_, hn::PromoteTo(F64(), hn::UpperHalf(half, weights)));
  }

  // What was added since the last call.
  uint64_t Total() {
    HWY_ALIGN double sums[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(hn::Add(low_, high_), F64(), sums);
    uint64_t total = 0;
    for (size_t lane = 0; lane < hn::Lanes(F64()); ++lane) {
      total += static_cast<uint64_t>(static_cast<int64_t>(sums[lane]));
    }
    low_ = high_ = hn::Zero(F64());
    return total;
  }

 private:
  using F64 = hn::Repartition<double, F32>;
  hn::Vec<F64> low_;
  hn::Vec<F64> high_;
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
