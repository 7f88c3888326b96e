// The weight of semantics/weight.h on vectors, bit for bit, and exact sums of weights.
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

// Weights of 24 significant bits and at most 2^40, so as fp32 integers they are exact.
class Weigher {
 public:
  HWY_INLINE Weigher(float max, float scale)
      : max_(hn::Set(F32(), max)), scale_(hn::Set(F32(), scale)) {}

  // x is not NaN and at most max.
  HWY_INLINE VecF32 operator()(VecF32 x) const {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const auto t = hn::Mul(hn::Sub(x, max_), scale_);
    const Parts parts = Split(hn::Max(t, hn::Set(d, -50.0f)));
    const auto f = parts.fraction;
    auto r = hn::MulAdd(hn::Set(d, 0x1.e974fap-10f), f, hn::Set(d, 0x1.277856p-7f));
    r = hn::MulAdd(r, f, hn::Set(d, 0x1.c91ce6p-5f));
    r = hn::MulAdd(r, f, hn::Set(d, 0x1.ebdb56p-3f));
    r = hn::MulAdd(r, f, hn::Set(d, 0x1.62e4bap-1f));
    r = hn::MulAdd(r, f, hn::Set(d, 0x1p+0f));
    // r lies in [1, 2], so adding floor(t) + 40 to its exponent multiplies it exactly. Below t =
    // -40 the product is below 1, and the floor makes it 0, as the definition has it.
    const auto w = hn::Add(hn::BitCast(di, r), hn::ShiftLeft<23>(parts.exponent));
    return hn::Floor(hn::BitCast(d, w));
  }

 private:
  struct Parts {
    hn::Vec<hn::RebindToSigned<F32>> exponent;  // floor(t) + 40, in the lowest bits
    VecF32 fraction;                            // t - floor(t)
  };
  // t in [-50, 0].
  static HWY_INLINE Parts Split(VecF32 t) {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const auto magic = hn::Set(d, 0x1.8p23f + 40.0f);
#if HWY_TARGET == HWY_AVX2
    const auto floor = hn::Floor(t);
    return {hn::BitCast(di, hn::Add(floor, magic)), hn::Sub(t, floor)};
#else
    // The addition itself rounds down to an integer.
    const VecF32 sum{
        _mm512_add_round_ps(t.raw, magic.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    return {hn::BitCast(di, sum), hn::Sub(t, hn::Sub(sum, magic))};
#endif
  }

  VecF32 max_;
  VecF32 scale_;
};

// An exact sum of vectors of weights: fp64 holds 2^13 of them in a lane. Total() at least once
// every kMostVectors.
class WeightSum {
 public:
  static constexpr size_t kMostVectors = 2048;

  WeightSum() : low_(hn::Zero(F64())), high_(hn::Zero(F64())) {}

  void Add(VecF32 weights) {
    const hn::Half<F32> half;
    low_ = hn::Add(low_, hn::PromoteTo(F64(), hn::LowerHalf(half, weights)));
    high_ = hn::Add(high_, hn::PromoteTo(F64(), hn::UpperHalf(half, weights)));
  }

  // The sum since the last call.
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

// An exact sum of weights, four vectors at a time. Adding to a large number leaves a multiple of
// 2^21 there and gives back the rest, |rest| <= 2^20, and both kinds of parts add up without a
// rounding for eight weights a lane.
class RowWeightSum {
 public:
  static constexpr size_t kGroupsInBlock = 8;

  HWY_INLINE RowWeightSum() : total_(0) { Clear(); }
  HWY_INLINE void Add(VecF32 w0, VecF32 w1, VecF32 w2, VecF32 w3) {
    AddTo(large0_, rest0_, w0);
    AddTo(large1_, rest1_, w1);
    AddTo(large2_, rest2_, w2);
    AddTo(large3_, rest3_, w3);
  }
  // At least after every kGroupsInBlock additions.
  HWY_INLINE void EndBlock() {
    const auto start = hn::Set(F32(), kStart);
    // Multiples of 2^21 below 2^45 in all: exact. The rests: at most 2^24 for two of them.
    const auto large = hn::Add(hn::Add(hn::Sub(large0_, start), hn::Sub(large1_, start)),
                               hn::Add(hn::Sub(large2_, start), hn::Sub(large3_, start)));
    wide_ = hn::Add(wide_, hn::Add(Widened(large), hn::Add(Widened(hn::Add(rest0_, rest1_)),
                                                           Widened(hn::Add(rest2_, rest3_)))));
    ClearBlock();
    if (++blocks_ == 128) Flush();
  }
  HWY_INLINE uint64_t Total() {
    Flush();
    return total_;
  }

 private:
  static constexpr float kStart = 0x1.8p44f;
  using Doubles = hn::Repartition<double, F32>;

  static HWY_INLINE void AddTo(VecF32& large, VecF32& rest, VecF32 w) {
    const auto next = hn::Add(large, w);
    rest = hn::Add(rest, hn::Sub(w, hn::Sub(next, large)));
    large = next;
  }
  static HWY_INLINE hn::Vec<Doubles> Widened(VecF32 x) {
    const Doubles dd;
    const hn::Half<F32> half;
    return hn::Add(hn::PromoteTo(dd, hn::LowerHalf(half, x)),
                   hn::PromoteTo(dd, hn::UpperHalf(half, x)));
  }
  HWY_INLINE void ClearBlock() {
    const F32 d;
    large0_ = large1_ = large2_ = large3_ = hn::Set(d, kStart);
    rest0_ = rest1_ = rest2_ = rest3_ = hn::Zero(d);
  }
  HWY_INLINE void Clear() {
    ClearBlock();
    wide_ = hn::Zero(Doubles());
    blocks_ = 0;
  }
  // 128 blocks of 64 weights below 2^40 in a lane: below 2^53, exact in fp64.
  HWY_INLINE void Flush() {
    HWY_ALIGN double sums[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(wide_, Doubles(), sums);
    for (size_t lane = 0; lane < hn::Lanes(Doubles()); ++lane) {
      total_ += static_cast<uint64_t>(static_cast<int64_t>(sums[lane]));
    }
    wide_ = hn::Zero(Doubles());
    blocks_ = 0;
  }

  VecF32 large0_, large1_, large2_, large3_;
  VecF32 rest0_, rest1_, rest2_, rest3_;
  hn::Vec<Doubles> wide_;
  uint64_t total_;
  size_t blocks_;
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
