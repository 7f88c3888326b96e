// Draws with vectors (Highway), compiled once for each SIMD target.
#include "draw/draw_table.h"
#include "semantics/draw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "draw/draw_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "draw/gumbel-inl.h"

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

// Collects the kept tokens of a few hundred elements at a time and draws among them.
int32_t DrawFromRow(const semantics::Row& row, const Cut& cut, float max, float scale,
                    DrawMethod method, const NoiseKey& key) {
  if (method == DrawMethod::kCdf) {
    return semantics::DrawToken(row, cut, max, scale, method, key);
  }
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  semantics::Winner best{0.0f, {0.0f, -1}};
  semantics::CutWalk walk(cut);
  HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN int32_t ids[HWY_MAX_BYTES / sizeof(float)] = {};
  size_t count = 0;
  auto draw_pending = [&]() HWY_ATTR {
    const auto noise = GumbelNoise(key, hn::Load(du, reinterpret_cast<const uint32_t*>(ids)));
    const auto t = hn::Mul(hn::Sub(hn::Load(d, x), hn::Set(d, max)), hn::Set(d, scale));
    Challenge(hn::Add(t, noise), x, ids, count, best);
    count = 0;
  };
  for (int64_t i = 0; i < row.size; ++i) {
    const float value = row[i];
    x[count] = value;
    ids[count] = static_cast<int32_t>(i);
    count += walk.Keeps(value) ? 1 : 0;
    if (count == lanes) draw_pending();
  }
  if (count > 0) draw_pending();
  return best.token.id;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice {

const DrawTable kDrawAvx2 = {N_AVX2::DrawFromRow, N_AVX2::DrawListed, LogprobsByDefinition,
                             VerifyByDefinition};
const DrawTable kDrawAvx512 = {N_AVX3::DrawFromRow, N_AVX3::DrawListed, LogprobsByDefinition,
                               VerifyByDefinition};

}  // namespace sluice
#endif
