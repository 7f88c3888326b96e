// Draws with vectors (Highway), compiled once for each SIMD target.
#include <cstring>

#include "draw/draw_table.h"
#include "semantics/draw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "draw/draw_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "draw/cdf-inl.h"
#include "draw/gumbel-inl.h"
#include "draw/logprobs-inl.h"
#include "draw/verify-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The best of a vector's tokens against the best so far. Most vectors hold no better score, and for
// those one comparison is all.
inline void Challenge(VecF32 scores, const float* x, const int32_t* ids, size_t count,
                      semantics::Winner& best) {
  const F32 d;
  if (best.token.id >= 0 && hn::AllFalse(d, hn::Ge(scores, hn::Set(d, best.score)))) return;
  HWY_ALIGN float score[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(scores, d, score);
  for (size_t lane = 0; lane < count; ++lane) {
    const semantics::Winner candidate{score[lane], {x[lane], ids[lane]}};
    if (semantics::Beats(candidate, best)) best = candidate;
  }
}

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

// Tokens by consecutive ids, eight vectors at a time. Ties at the boundaries are counted one by
// one, as the definition does; everything else is decided by comparisons of vectors.
int32_t DrawFromRow(const semantics::Row& row, const Cut& cut, float max, float scale,
                    DrawMethod method, const NoiseKey& key) {
  if (method == DrawMethod::kCdf) {
    return semantics::DrawToken(row, cut, max, scale, method, key);
  }
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  const auto lower = hn::Set(d, cut.lower), upper = hn::Set(d, cut.upper);
  semantics::Winner best{0.0f, {0.0f, -1}};
  semantics::CutWalk walk(cut);
  NoiseChunk noise;
  HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float kept[HWY_MAX_BYTES / sizeof(float)];
  HWY_ALIGN float score[HWY_MAX_BYTES / sizeof(float)];

  for (size_t chunk = 0; chunk < size; chunk += 8 * lanes) {
    bool has_noise = false;
    for (size_t v = 0; v < 8 && chunk + v * lanes < size; ++v) {
      const size_t first = chunk + v * lanes;
      if (row.dtype == DType::kF32 && first + lanes <= size) {
        std::memcpy(x, static_cast<const float*>(row.data) + first, lanes * sizeof(float));
      } else {
        for (size_t lane = 0; lane < lanes; ++lane) {  // -inf is never kept
          x[lane] = first + lane < size ? row[static_cast<int64_t>(first + lane)]
                                        : -semantics::Infinity();
        }
      }
      const auto values = hn::Load(d, x);
      auto is_kept = hn::And(hn::Gt(values, lower), hn::Lt(values, upper));
      if (!hn::AllFalse(d, hn::Or(hn::Eq(values, lower), hn::Eq(values, upper)))) {
        for (size_t lane = 0; lane < lanes; ++lane) kept[lane] = walk.Keeps(x[lane]) ? 1.0f : 0.0f;
        is_kept = hn::Ne(hn::Load(d, kept), hn::Zero(d));
      }
      if (hn::AllFalse(d, is_kept)) continue;
      if (!has_noise) noise.Fill(key, static_cast<uint32_t>(chunk));
      has_noise = true;
      const auto t = hn::Mul(hn::Sub(values, hn::Set(d, max)), hn::Set(d, scale));
      const auto scores = hn::Add(t, noise.Gumbel(v));
      auto challenges = is_kept;
      if (best.token.id >= 0) {
        challenges = hn::And(challenges, hn::Ge(scores, hn::Set(d, best.score)));
      }
      if (hn::AllFalse(d, challenges)) continue;
      hn::Store(scores, d, score);
      hn::Store(hn::IfThenElseZero(challenges, hn::Set(d, 1.0f)), d, kept);
      for (size_t lane = 0; lane < lanes; ++lane) {
        if (kept[lane] == 0.0f) continue;
        const semantics::Winner candidate{score[lane],
                                          {x[lane], static_cast<int32_t>(first + lane)}};
        if (semantics::Beats(candidate, best)) best = candidate;
      }
    }
  }
  return best.token.id;
}

int32_t DrawByMethod(const semantics::Row& row, const Cut& cut, float max, float scale,
                     DrawMethod method, const NoiseKey& key) {
  if (method == DrawMethod::kCdf) return DrawCdfOfAnyDType(row, cut, max, scale, key);
  // Of no rule, but a caller's own: it would keep DrawFromRow's padding.
  if (cut.lower == -semantics::Infinity()) {
    return semantics::DrawToken(row, cut, max, scale, method, key);
  }
  return DrawFromRow(row, cut, max, scale, method, key);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice {

const DrawTable kDrawAvx2 = {N_AVX2::ExamineRowOfAnyDType, N_AVX2::FirstKeptOfAnyDType,
                             N_AVX2::DrawByMethod,         N_AVX2::DrawListed,
                             N_AVX2::LogprobsOfRows,       N_AVX2::VerifyDraft};
const DrawTable kDrawAvx512 = {N_AVX3::ExamineRowOfAnyDType, N_AVX3::FirstKeptOfAnyDType,
                               N_AVX3::DrawByMethod,         N_AVX3::DrawListed,
                               N_AVX3::LogprobsOfRows,       N_AVX3::VerifyDraft};

}  // namespace sluice
#endif
