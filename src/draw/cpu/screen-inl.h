// A Gumbel draw over a whole row, at a fraction of the noise: the high 16 bits of a token's noise
// bound its score from above, and only tokens with a bound that reaches the best score so far get
// their low bits and their logarithms (the definition's noise is laid out for it: one block of high
// bits serves eight tokens).
//
// With N = h * 2^32 + w, e(N) >= h * 2^-16 * log2(e), so g <= 15.4712 - log2(h): a token can only
// win if h <= 2^(t - best + 15.4712). That power is bounded from above by the bits of a float, a
// straight line between powers of two, and compared with h as a 16-bit integer.
#include <algorithm>
#include <cmath>

#include "semantics/draw/draw.h"

#if defined(SLUICE_DRAW_CPU_SCREEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_SCREEN_INL_H_
#undef SLUICE_DRAW_CPU_SCREEN_INL_H_
#else
#define SLUICE_DRAW_CPU_SCREEN_INL_H_
#endif

#include "draw/cpu/gumbel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Four vectors of tokens; one vector of blocks holds their high bits.
constexpr size_t kScreenVectors = 4;
inline size_t ScreenTokens() { return kScreenVectors * hn::Lanes(F32()); }

// The high bits of ScreenTokens() consecutive tokens as 16-bit numbers, in the order in which two
// vectors of 32-bit integers are packed: 128 bits of the first, 128 of the second, and so on.
struct ScreenBits {
  VecU32 first;   // of the first two vectors of tokens
  VecU32 second;  // of the other two
};

// Philox4x32-10 with a block in each 64-bit lane, so that no product has to be taken apart: its
// low half serves as it is, and one shuffle brings up the high half. What stands in the upper half
// of a lane means nothing. The first three rounds are half constant, as only the block index
// varies.
class ScreenNoise {
 public:
  ScreenNoise(const NoiseKey& key, semantics::Stream stream) {
    const U32 du;
    const U64 dd;
    m0_ = hn::Set(du, kM0);
    m1_ = hn::Set(du, kM1);
    asm("" : "+v"(m0_.raw), "+v"(m1_.raw));  // or gcc makes them anew for every block
    uint32_t k0 = static_cast<uint32_t>(key.seed);
    uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
    const uint32_t s = static_cast<uint32_t>(stream) | key.choice << 8;
    const auto next_key = [&] {
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    };
    const uint64_t p0 = uint64_t{key.position} * kM0;
    const uint64_t p1 = uint64_t{s} * kM1;
    xor_index_ = hn::Set(du, static_cast<uint32_t>(p1 >> 32) ^ k0);
    const uint32_t a1 = static_cast<uint32_t>(p1);
    const uint32_t a2 = static_cast<uint32_t>(p0 >> 32) ^ k1;  // plane 0
    const uint32_t a3 = static_cast<uint32_t>(p0);
    next_key();
    const uint64_t q1 = uint64_t{a2} * kM1;
    const uint32_t b0 = static_cast<uint32_t>(q1 >> 32) ^ a1 ^ k0;
    const uint32_t b1 = static_cast<uint32_t>(q1);
    xor_second_ = hn::Set(du, a3 ^ k1);
    next_key();
    const uint64_t r0 = uint64_t{b0} * kM0;
    xor_third_0_ = hn::Set(du, b1 ^ k0);
    xor_third_2_ = hn::Set(du, static_cast<uint32_t>(r0 >> 32) ^ k1);
    const uint32_t d3 = static_cast<uint32_t>(r0);
    next_key();
    xor_fourth_0_ = hn::Set(du, k0);
    xor_fourth_2_ = hn::Set(du, d3 ^ k1);
    for (int round = 0; round < kFullRounds; ++round) {
      next_key();
      keys_[round][0] = k0;
      keys_[round][1] = k1;
    }
    lane_blocks_ = hn::BitCast(du, hn::Iota(dd, uint64_t{0}));
  }

  // first_block: id / 8 of the first token.
  HWY_INLINE ScreenBits Bits(uint32_t first_block) const {
    const U32 du;
    const auto m0 = m0_, m1 = m1_;
    const auto index = hn::Add(lane_blocks_, hn::Set(du, first_block));
    auto c0 = hn::Xor(index, xor_index_);
    // Second round.
    auto p0 = Product(c0, m0);
    auto c2 = hn::Xor(High(p0), xor_second_);
    auto c3 = p0;
    // Third.
    auto p1 = Product(c2, m1);
    c0 = hn::Xor(High(p1), xor_third_0_);
    auto c1 = p1;
    c2 = hn::Xor(c3, xor_third_2_);
    // Fourth.
    p0 = Product(c0, m0);
    p1 = Product(c2, m1);
    c0 = hn::Xor3(High(p1), c1, xor_fourth_0_);
    c1 = p1;
    c2 = hn::Xor(High(p0), xor_fourth_2_);
    c3 = p0;
    for (int round = 0; round < kFullRounds; ++round) {
      p0 = Product(c0, m0);
      p1 = Product(c2, m1);
      c0 = hn::Xor3(High(p1), c1, hn::Set(du, keys_[round][0]));
      c1 = p1;
      c2 = hn::Xor3(High(p0), c3, hn::Set(du, keys_[round][1]));
      c3 = p0;
    }
    return Arrange(c0, c1, c2, c3);
  }

 private:
  using U64 = hn::Repartition<uint64_t, F32>;
  static constexpr uint32_t kM0 = 0xD2511F53u;
  static constexpr uint32_t kM1 = 0xCD9E8D57u;
  static constexpr int kFullRounds = 6;

  static HWY_INLINE VecU32 Product(VecU32 a, VecU32 b) {
    return hn::BitCast(U32(), hn::MulEven(a, b));
  }
  // A shuffle, not a shift: shifts of 512 bits compete with products for the same port.
  static HWY_INLINE VecU32 High(VecU32 product) { return hn::Shuffle2301(product); }

  // Words 0 and 1 of block b hold tokens 8 b to 8 b + 3, words 2 and 3 the next four.
  static HWY_INLINE ScreenBits Arrange(VecU32 c0, VecU32 c1, VecU32 c2, VecU32 c3) {
    const U32 du;
#if HWY_TARGET == HWY_AVX2
    const auto odd = [&](VecU32 v) HWY_ATTR {
      return hn::BitCast(du, hn::ShiftLeft<32>(hn::BitCast(U64(), v)));
    };
    const VecU32 low = hn::OddEven(odd(c1), c0);
    const VecU32 high = hn::OddEven(odd(c3), c2);
    return {VecU32{_mm256_permute2x128_si256(low.raw, high.raw, 0x20)},
            VecU32{_mm256_permute2x128_si256(low.raw, high.raw, 0x31)}};
#else
    (void)du;
    const auto even = _MM_PERM_CCAA;  // each even word twice
    const __m512i low = _mm512_mask_shuffle_epi32(c0.raw, 0xaaaa, c1.raw, even);
    const __m512i high = _mm512_mask_shuffle_epi32(c2.raw, 0xaaaa, c3.raw, even);
    const __m512i first = _mm512_setr_epi64(0, 2, 8, 10, 1, 3, 9, 11);
    const __m512i second = _mm512_setr_epi64(4, 6, 12, 14, 5, 7, 13, 15);
    return {VecU32{_mm512_permutex2var_epi64(low, first, high)},
            VecU32{_mm512_permutex2var_epi64(low, second, high)}};
#endif
  }

  VecU32 m0_, m1_;
  VecU32 lane_blocks_;
  VecU32 xor_index_, xor_second_, xor_third_0_, xor_third_2_, xor_fourth_0_, xor_fourth_2_;
  uint32_t keys_[kFullRounds][2];
};

// The bound 2^(t - best + 15.4712) on h, for four vectors of values.
class ScreenBound {
 public:
  ScreenBound(float max, float scale) : max_(max), scale_(scale) {
    // Far from 0 the product alone would be too coarse: then the maximum is taken off first.
    shifts_ = !(std::abs(static_cast<double>(max) * static_cast<double>(scale)) < 1000.0);
    slope_ = hn::Set(F32(), scale * 0x1p23f);
    shift_ = hn::Set(F32(), shifts_ ? max : 0.0f);
  }

  // best: a score that the winner reaches at least. The bound is too high by more than all
  // roundings together: of the definition's t (2^-23 of it), of the score, of this line's offset
  // and of its value (2^-24 of each); t is within 55 octaves of best, and the shift below 1000.
  void Set(float best) {
    const double shift = shifts_ ? 0.0 : -static_cast<double>(max_) * static_cast<double>(scale_);
    const double slack = 1e-3 + 0x1p-21 * std::abs(static_cast<double>(best));
    const double at_zero = shift - static_cast<double>(best) + 15.4712 + slack;
    offset_ = hn::Set(F32(), static_cast<float>((at_zero + 127.0) * 0x1p23));
  }

  // One bound for the four tokens of a lane, by the largest: a bound each would cost more than
  // looking closer at three times as many tokens, some dozens in all. In the order of ScreenBits,
  // for the first two vectors as for the others. kIsSafe: best is at least -6, and is_near_zero().
  template <bool kIsSafe>
  HWY_INLINE VecU32 Of(VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) const {
    const auto power = Power<kIsSafe>(hn::Max(hn::Max(x0, x1), hn::Max(x2, x3)));
    return Pack(power, power);
  }

  bool is_near_zero() const { return !shifts_; }

 private:
  // Below 2^31, and at most 0 where even h = 0 would not do: then h = 0 passes all the same.
  template <bool kIsSafe>
  HWY_INLINE VecI32 Power(VecF32 x) const {
    const F32 d;
    auto clamped = hn::MulAdd(kIsSafe ? x : hn::Sub(x, shift_), slope_, offset_);
    if constexpr (!kIsSafe) clamped = hn::Min(clamped, hn::Set(d, (127.0f + 17.0f) * 0x1p23f));
#if HWY_TARGET == HWY_AVX2
    return VecI32{_mm256_cvttps_epi32(_mm256_castsi256_ps(_mm256_cvtps_epi32(clamped.raw)))};
#else
    return VecI32{_mm512_cvttps_epi32(_mm512_castsi512_ps(_mm512_cvtps_epi32(clamped.raw)))};
#endif
  }
  // With unsigned saturation.
  static HWY_INLINE VecU32 Pack(VecI32 a, VecI32 b) {
#if HWY_TARGET == HWY_AVX2
    return VecU32{_mm256_packus_epi32(a.raw, b.raw)};
#else
    return VecU32{_mm512_packus_epi32(a.raw, b.raw)};
#endif
  }

  float max_;
  float scale_;
  bool shifts_;
  VecF32 slope_;
  VecF32 shift_;
  VecF32 offset_ = hn::Zero(F32());
};

// A bit for each 16-bit h that is at most its bound, in the order of ScreenBits.
HWY_INLINE uint32_t AtMost(VecU32 h, VecU32 bound) {
#if HWY_TARGET == HWY_AVX2
  const __m256i is_at_most = _mm256_cmpeq_epi16(_mm256_min_epu16(h.raw, bound.raw), h.raw);
  // A byte a bit: every other one is of use.
  return static_cast<uint32_t>(_mm256_movemask_epi8(is_at_most));
#else
  return _mm512_cmple_epu16_mask(h.raw, bound.raw);
#endif
}

// What AtMost's answers say of ScreenTokens() tokens, the first two vectors' low: bits that count.
inline uint64_t CountedBits(uint64_t passes) {
#if HWY_TARGET == HWY_AVX2
  return passes & 0x5555555555555555u;
#else
  return passes;
#endif
}

// Which of these tokens the lowest bit is of.
inline size_t ScreenedToken(uint64_t passes) {
#if HWY_TARGET == HWY_AVX2
  constexpr size_t kBitsInToken = 2;
#else
  constexpr size_t kBitsInToken = 1;
#endif
  const size_t bit = static_cast<size_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(passes));
  const size_t at = bit % 32 / kBitsInToken;  // in the packed order
  const size_t vector = bit / 32 * 2 + at % 8 / 4;
  return vector * hn::Lanes(F32()) + at / 8 * 4 + at % 4;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
