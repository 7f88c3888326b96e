#include "sampler/certified/certified_gumbel.h"

#include <algorithm>
#include <cmath>

namespace sluice {

using semantics::Token;
using semantics::Winner;

CertifiedGumbel::CertifiedGumbel(RowCertificate& certificate, const DrawTable& draws,
                                 const NoiseKey& key, const Token& first, float scale,
                                 int64_t vocab, std::byte* workspace)
    : certificate_(certificate),
      draws_(draws),
      key_(key),
      first_(first),
      scale_(scale),
      vocab_(vocab),
      bounds_(reinterpret_cast<float*>(workspace)),
      ids_(reinterpret_cast<int32_t*>(workspace) + vocab) {}

float CertifiedGumbel::ScoreOf(float x, int32_t id) const {
  const float g = semantics::Gumbel(semantics::NoiseBits(key_, semantics::GumbelStream(key_), id));
  return semantics::LogWeight(x, first_.x, scale_) + g;
}

void CertifiedGumbel::Challenge(int32_t id, const Token* end, Winner& best) {
  const Token token{certificate_.Compute(id), id};
  if (token.x == -semantics::Infinity()) return;
  if (end != nullptr && !semantics::Before(token, *end)) return;
  const Winner candidate{ScoreOf(token.x, id), token};
  if (semantics::Beats(candidate, best)) best = candidate;
}

bool CertifiedGumbel::MayWin(int32_t id, float best_score, float& bound) const {
  const float upper = certificate_.Upper(id);
  bound = upper == -semantics::Infinity() ? upper : ScoreOf(upper, id);
  return bound >= best_score;
}

bool CertifiedGumbel::Draw(const Token* end, Token& winner) {
  Winner best{ScoreOf(first_.x, first_.id), first_};
  // A guess: what the draw from the scores gives.
  Cut all;
  all.lower = end == nullptr ? semantics::kLowestValue : std::nextafter(end->x, first_.x);
  all.ties_kept = all.count = static_cast<int32_t>(vocab_);
  const semantics::Row scores{certificate_.intervals().scores, DType::kF32, vocab_};
  const int32_t guess = draws_.draw(scores, all, first_.x, scale_, DrawMethod::kGumbel, key_);
  if (guess >= 0) Challenge(guess, end, best);

  // The tokens that may still win, by their bounds, the best bound first.
  const float least = end == nullptr ? -semantics::Infinity() : end->x;
  for (int64_t v = 0; v < vocab_; ++v) {
    const float upper = certificate_.Upper(v);
    bounds_[v] = upper < least ? -semantics::Infinity() : upper;
  }
  const int64_t listed = draws_.list_contenders({bounds_, static_cast<size_t>(vocab_)}, first_.x,
                                                scale_, key_, best.score, ids_);
  int64_t contenders = 0;
  for (int64_t i = 0; i < listed; ++i) {
    const int32_t id = ids_[i];
    if (!MayWin(id, best.score, bounds_[id])) continue;
    certificate_.Refine(id);
    if (MayWin(id, best.score, bounds_[id])) ids_[contenders++] = id;
  }
  std::sort(ids_, ids_ + contenders, [&](int32_t a, int32_t b) {
    return bounds_[a] > bounds_[b] || (bounds_[a] == bounds_[b] && a < b);
  });
  for (int64_t i = 0; i < contenders && bounds_[ids_[i]] >= best.score; ++i) {
    if (certificate_.Room() < 0) return false;
    Challenge(ids_[i], end, best);
  }
  winner = best.token;
  return true;
}

}  // namespace sluice
