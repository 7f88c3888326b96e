// The noise of semantics/draw/noise.h on vectors, bit for bit.
#include "semantics/draw/noise.h"

#if defined(SLUICE_DRAW_CPU_GUMBEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_GUMBEL_INL_H_
#undef SLUICE_DRAW_CPU_GUMBEL_INL_H_
#else
#define SLUICE_DRAW_CPU_GUMBEL_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using VecI32 = hn::Vec<hn::RebindToSigned<F32>>;
using VecU32 = hn::Vec<U32>;

struct WidePair {
  VecU32 low;
  VecU32 high;
};

inline WidePair MulWide(VecU32 a, uint32_t multiplier) {
  const U32 d;
  const hn::Repartition<uint64_t, U32> dd;
  const auto b = hn::Set(d, multiplier);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dd, a))), b);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
}

struct BlockVector {
  VecU32 word[4];
};

// Philox4x32-10 of a block index in each lane.
inline BlockVector NoiseBlocks(const NoiseKey& key, semantics::Stream stream, VecU32 index,
                               uint32_t plane) {
  const U32 d;
  auto c0 = hn::Set(d, key.position);
  auto c1 = index;
  auto c2 = hn::Set(d, static_cast<uint32_t>(stream) | key.choice << 8);
  auto c3 = hn::Set(d, plane);
  uint32_t k0 = static_cast<uint32_t>(key.seed);
  uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const WidePair p0 = MulWide(c0, 0xD2511F53u);
    const WidePair p1 = MulWide(c2, 0xCD9E8D57u);
    c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
    c1 = p1.low;
    c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// word[which] for `which` in 0..3, lane by lane.
inline VecU32 Choose(const BlockVector& block, VecU32 which) {
  const U32 d;
  const auto odd = hn::Ne(hn::And(which, hn::Set(d, 1)), hn::Zero(d));
  const auto upper = hn::Ne(hn::And(which, hn::Set(d, 2)), hn::Zero(d));
  return hn::IfThenElse(upper, hn::IfThenElse(odd, block.word[3], block.word[2]),
                        hn::IfThenElse(odd, block.word[1], block.word[0]));
}

inline VecF32 Log2Quotient(VecF32 u) {
  const F32 d;
  auto q = hn::Set(d, -0x1.01bd1p-4f);
  for (const float c :
       {0x1.3132d8p-3f, -0x1.84e022p-3f, 0x1.ac8c92p-3f, -0x1.ebf2cap-3f, 0x1.274d54p-2f,
        -0x1.715426p-2f, 0x1.ec714p-2f, -0x1.715478p-1f, 0x1.715476p+0f}) {
    q = hn::MulAdd(q, u, hn::Set(d, c));
  }
  return q;
}

// As semantics::Log2: y is positive and normal.
inline VecF32 Log2(VecF32 y) {
  const F32 d;
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const auto bits = hn::BitCast(du, y);
  const auto fraction = hn::And(bits, hn::Set(du, 0x7fffffu));
  const auto halved = hn::Gt(hn::BitCast(di, fraction), hn::Set(di, 0x3fffff));
  const auto one = hn::IfThenElseZero(halved, hn::Set(di, 1));
  const auto k = hn::Add(hn::Sub(hn::BitCast(di, hn::ShiftRight<23>(bits)), hn::Set(di, 127)), one);
  const auto exponent = hn::Sub(hn::Set(di, 127), one);
  const auto significand = hn::Or(fraction, hn::BitCast(du, hn::ShiftLeft<23>(exponent)));
  const auto u = hn::Sub(hn::BitCast(d, significand), hn::Set(d, 1.0f));
  return hn::MulAdd(u, Log2Quotient(u), hn::ConvertTo(d, k));
}

// fl(2 n + 1) of n = high * 2^32 + low below 2^48. Exact in fp64 from two parts of at most 33 bits,
// then rounded once.
inline VecF32 OddNumber(VecU32 high, VecU32 low) {
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const hn::Repartition<double, F32> dd;
  const hn::Half<decltype(di)> dih;
  const hn::Half<F32> dfh;
  // 2 n + 1 = upper * 2^18 + lower, upper = n >> 17 (31 bits), lower = 2 (n mod 2^17) + 1.
  const auto upper = hn::BitCast(di, hn::Or(hn::ShiftLeft<15>(high), hn::ShiftRight<17>(low)));
  const auto lower = hn::BitCast(
      di, hn::Or(hn::ShiftLeft<1>(hn::And(low, hn::Set(du, 0x1ffffu))), hn::Set(du, 1)));
  auto part = [&](auto upper_half, auto lower_half) HWY_ATTR {
    return hn::DemoteTo(dfh, hn::MulAdd(hn::PromoteTo(dd, upper_half), hn::Set(dd, 0x1p18),
                                        hn::PromoteTo(dd, lower_half)));
  };
  return hn::Combine(F32(), part(hn::UpperHalf(dih, upper), hn::UpperHalf(dih, lower)),
                     part(hn::LowerHalf(dih, upper), hn::LowerHalf(dih, lower)));
}

// The Gumbel variate of N = high * 2^32 + low in each lane.
inline VecF32 GumbelOf(VecU32 high, VecU32 low) {
  const F32 d;
  const U32 du;
  // N < 2^46 iff high < 2^14; else the distance from the end is taken, 2^48 - 1 - N.
  const hn::RebindToSigned<F32> di;
  const auto by_series = hn::RebindMask(d, hn::Lt(hn::BitCast(di, high), hn::Set(di, 1 << 14)));
  const auto mask_u = hn::RebindMask(du, by_series);
  const auto n_high = hn::IfThenElse(mask_u, high, hn::Xor(high, hn::Set(du, 0xffffu)));
  const auto n_low = hn::IfThenElse(mask_u, low, hn::Not(low));
  const auto y = hn::Mul(OddNumber(n_high, n_low), hn::Set(d, 0x1p-49f));
  const auto u = hn::Neg(y);
  const auto series = hn::Neg(hn::Mul(u, Log2Quotient(u)));
  const auto e = hn::IfThenElse(by_series, series, hn::Neg(Log2(y)));
  return hn::Neg(Log2(e));
}

// The Gumbel noise of any token in each lane.
inline VecF32 GumbelNoise(const NoiseKey& key, VecU32 ids) {
  const U32 du;
  const semantics::Stream stream = semantics::GumbelStream(key);
  const BlockVector screen = NoiseBlocks(key, stream, hn::ShiftRight<3>(ids), 0);
  const auto pair = Choose(screen, hn::ShiftRight<1>(ids));
  const auto is_upper = hn::Ne(hn::And(ids, hn::Set(du, 1)), hn::Zero(du));
  const auto high =
      hn::IfThenElse(is_upper, hn::ShiftRight<16>(pair), hn::And(pair, hn::Set(du, 0xffffu)));
  const BlockVector fine = NoiseBlocks(key, stream, hn::ShiftRight<2>(ids), 1);
  return GumbelOf(high, Choose(fine, ids));
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
