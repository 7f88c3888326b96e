// Exact sums of weights, fast: the weight of semantics/weight.h by instructions that round like it,
// in two words of 20 bits, so that a thread adds integers of 32 bits.
#pragma once

#include "semantics/weight.h"

namespace sluice::cuda {

class MassSum {
 public:
  // A sum of more addends could overflow its words.
  static constexpr int kMostAddends = 4000;

  // The part of one value, to be added to one sum or to several.
  struct Addend {
    uint32_t high;
    uint32_t low;

    __device__ uint64_t Weight() const {
      const uint32_t base = __float_as_uint(kBase);
      return (static_cast<uint64_t>(high - base) << 20) + (low - base);
    }
  };

  static __device__ Addend Of(float x, float max, float scale) {
    const float d = x - max;
    float t = d * scale;
    t = t >= -40.0f ? t : -41.0f;                // of weight 0
    const float shifted = __fadd_rd(t, kMagic);  // an integer, rounded down: floor(t) in its bits
    const float f = t - (shifted - kMagic);
    const float r = semantics::Exp2Fraction(f);
    const float w = __uint_as_float(__float_as_uint(r) + (__float_as_uint(shifted) << 23));
    // w = 2^-40 W and something that is cut off. From 8 to 16 floats lie 2^-20 apart.
    const float high = __fadd_rz(w, kBase);
    const float rest = w - (high - kBase);
    return {__float_as_uint(high), __float_as_uint(__fmaf_rz(rest, 0x1p20f, kBase))};
  }

  __device__ void Add(const Addend& addend) {
    high_ += addend.high;
    low_ += addend.low;
  }

  // addends: how many there were.
  __device__ uint64_t Total(uint32_t addends) const {
    const uint32_t bases = addends * __float_as_uint(kBase);
    return (static_cast<uint64_t>(high_ - bases) << 20) + (low_ - bases);
  }

 private:
  static constexpr float kMagic = 0x1.8p23f;
  static constexpr float kBase = 8.0f;

  uint32_t high_ = 0;
  uint32_t low_ = 0;
};

}  // namespace sluice::cuda
