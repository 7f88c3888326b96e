// The winner of a Gumbel draw when logits are intervals, with as few of them computed as decide it.
//
// A Gumbel draw is an argmax, of fl(fl(fl(x - m) scale) + g) with noise g that a token's id alone
// decides. Every rounding in it is monotone in x, so the same expression of an upper bound of x is
// an upper bound of the score, and a token with a bound below a score that was computed cannot win.
// No mass is needed, and no sort.
#pragma once

#include "draw/draw_table.h"
#include "head/certified/row_certificate.h"
#include "semantics/draw/draw.h"

namespace sluice {

class CertifiedGumbel {
 public:
  // first: the first token of the row. workspace: a float and an id a token.
  CertifiedGumbel(RowCertificate& certificate, const DrawTable& draws, const NoiseKey& key,
                  const semantics::Token& first, float scale, int64_t vocab, std::byte* workspace);

  // Among the tokens before `end` in the total order (null: among all), which is not the first.
  // False: too many may win.
  bool Draw(const semantics::Token* end, semantics::Token& winner);

 private:
  float ScoreOf(float x, int32_t id) const;
  // Computes the token, if that is not known; takes its place where it is better.
  void Challenge(int32_t id, const semantics::Token* end, semantics::Winner& best);
  bool MayWin(int32_t id, float best_score, float& bound) const;

  RowCertificate& certificate_;
  const DrawTable& draws_;
  const NoiseKey& key_;
  const semantics::Token first_;
  const float scale_;
  const int64_t vocab_;
  float* const bounds_;
  int32_t* const ids_;
};

}  // namespace sluice
