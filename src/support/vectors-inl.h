// Vectors of fp32, and how a row of any dtype is read into them.
#include <limits>

#include "semantics/widen.h"

#if defined(SLUICE_SUPPORT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SUPPORT_VECTORS_INL_H_
#undef SLUICE_SUPPORT_VECTORS_INL_H_
#else
#define SLUICE_SUPPORT_VECTORS_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VecF32 = hn::Vec<F32>;

// Keeps a value in its register. Without it gcc repeats a load as an operand of every instruction
// that needs it, and a pass that is bound by loads from the second-level cache takes 1.6 floors
// instead of 0.95 (the maximum of a row, V = 128256, Intel with AVX-512).
inline VecF32 InRegister(VecF32 x) {
  asm("" : "+v"(x.raw));
  return x;
}

// Reads a vector of elements, or one, and widens it, exactly.
struct ReadF32 {
  using Element = float;
  static constexpr float kMasked = -std::numeric_limits<float>::infinity();
  static VecF32 At(const void* row, size_t i) {
    return InRegister(hn::LoadU(F32(), static_cast<const float*>(row) + i));
  }
  static float One(const void* row, size_t i) { return static_cast<const float*>(row)[i]; }
};
struct ReadBf16 {
  using Element = uint16_t;
  static constexpr uint16_t kMasked = 0xff80;  // -inf
  static VecF32 At(const void* row, size_t i) {
    const hn::Rebind<uint16_t, F32> du16;
    const hn::RebindToUnsigned<F32> du32;
    const auto bits = hn::PromoteTo(du32, hn::LoadU(du16, static_cast<const uint16_t*>(row) + i));
    return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
  }
  static float One(const void* row, size_t i) {
    return semantics::WidenBf16(static_cast<const uint16_t*>(row)[i]);
  }
};
struct ReadF16 {
  using Element = uint16_t;
  static constexpr uint16_t kMasked = 0xfc00;  // -inf
  static VecF32 At(const void* row, size_t i) {
    const hn::Rebind<hwy::float16_t, F32> df16;
    return hn::PromoteTo(F32(), hn::LoadU(df16, static_cast<const hwy::float16_t*>(row) + i));
  }
  static float One(const void* row, size_t i) {
    return semantics::WidenF16(static_cast<const uint16_t*>(row)[i]);
  }
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
