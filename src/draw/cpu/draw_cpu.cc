// Draws with vectors (Highway), compiled once for each SIMD target.
#include "draw/draw_table.h"
#include "semantics/draw/draw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "draw/cpu/draw_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "draw/cpu/cdf-inl.h"
#include "draw/cpu/contenders-inl.h"
#include "draw/cpu/logprobs-inl.h"
#include "draw/cpu/screened_draw-inl.h"
#include "draw/cpu/verify-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

int32_t DrawListed(const TokenList& tokens, float max, float scale, const NoiseKey& key) {
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(tokens.size);
  semantics::Winner best{0.0f, {0.0f, -1}};
  HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN int32_t ids[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t i = 0; i < size; i += lanes) {
    const size_t count = HWY_MIN(lanes, size - i);
    for (size_t lane = 0; lane < count; ++lane) {
      x[lane] = tokens.x[i + lane];
      ids[lane] = tokens.ids[i + lane];
    }
    const auto noise = GumbelNoise(key, hn::Load(du, reinterpret_cast<const uint32_t*>(ids)));
    const auto t = hn::Mul(hn::Sub(hn::Load(d, x), hn::Set(d, max)), hn::Set(d, scale));
    Challenge(hn::Add(t, noise), x, ids, count, best);
  }
  return best.token.id;
}

int32_t DrawByMethod(const semantics::Row& row, const Cut& cut, float max, float scale,
                     DrawMethod method, const NoiseKey& key) {
  if (method == DrawMethod::kCdf) return DrawCdfOfAnyDType(row, cut, max, scale, key);
  // This Cut comes from no rule, but from the caller: it keeps what is masked.
  if (cut.lower == -semantics::Infinity()) {
    return semantics::DrawToken(row, cut, max, scale, method, key);
  }
  switch (row.dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return DrawScreened<ReadBf16>(row, cut, max, scale, key);
    case DType::kF16:
      return DrawScreened<ReadF16>(row, cut, max, scale, key);
  }
  return DrawScreened<ReadF32>(row, cut, max, scale, key);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice {

const DrawTable kDrawAvx2 = {N_AVX2::ExamineRowOfAnyDType, N_AVX2::FirstKeptOfAnyDType,
                             N_AVX2::DrawByMethod,         N_AVX2::DrawListed,
                             N_AVX2::ListContenders,       N_AVX2::LogprobsOfRows,
                             N_AVX2::VerifyDrafts};
const DrawTable kDrawAvx512 = {N_AVX3::ExamineRowOfAnyDType, N_AVX3::FirstKeptOfAnyDType,
                               N_AVX3::DrawByMethod,         N_AVX3::DrawListed,
                               N_AVX3::ListContenders,       N_AVX3::LogprobsOfRows,
                               N_AVX3::VerifyDrafts};

}  // namespace sluice
#endif
