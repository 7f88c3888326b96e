// Which tokens a Gumbel draw may give when only an upper bound of each value is known: the screen
// of screen-inl.h against a score that the winner has at least.
#include "semantics/draw/draw.h"

#if defined(SLUICE_DRAW_CPU_CONTENDERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_CONTENDERS_INL_H_
#undef SLUICE_DRAW_CPU_CONTENDERS_INL_H_
#else
#define SLUICE_DRAW_CPU_CONTENDERS_INL_H_
#endif

#include "draw/cpu/screen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

inline int64_t ListContenders(std::span<const float> x, float max, float scale, const NoiseKey& key,
                              float best, int32_t* ids) {
  const size_t lanes = hn::Lanes(F32());
  const size_t step = ScreenTokens();
  const ScreenNoise noise(key, semantics::GumbelStream(key));
  ScreenBound bound(max, scale);
  bound.Set(best);
  HWY_ALIGN float end[kScreenVectors * HWY_MAX_BYTES / sizeof(float)];
  int64_t listed = 0;
  for (size_t first = 0; first < x.size(); first += step) {
    const float* values = x.data() + first;
    if (first + step > x.size()) {
      for (size_t i = 0; i < step; ++i) {
        end[i] = first + i < x.size() ? values[i] : ReadF32::kMasked;
      }
      values = end;
    }
    const ScreenBits bits = noise.Bits(static_cast<uint32_t>(first / 8));
    const auto most =
        bound.Of<false>(ReadF32::At(values, 0), ReadF32::At(values, lanes),
                        ReadF32::At(values, 2 * lanes), ReadF32::At(values, 3 * lanes));
    uint64_t passes = AtMost(bits.first, most) | uint64_t{AtMost(bits.second, most)} << 32;
    for (passes = CountedBits(passes); passes != 0; passes &= passes - 1) {
      const size_t id = first + ScreenedToken(passes);
      if (id < x.size()) ids[listed++] = static_cast<int32_t>(id);
    }
  }
  return listed;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
