// Top-p on all tokens of a row, when logits are intervals: the mass of the row is known between two
// ends, and more is computed until both of them agree. Exactly of the kept interval, which a
// Cut and a cdf draw need; or of the token that is drawn alone (lazy membership), which takes less.
#pragma once

#include "sampler/certified/certified_gumbel.h"
#include "semantics/filters/nucleus.h"

namespace sluice {

class CertifiedNucleus {
 public:
  // params: of which IsNucleus holds. first: the first token of the row.
  CertifiedNucleus(RowCertificate& certificate, const SelectParams& params, const NoiseKey& key,
                   const semantics::Token& first, int64_t vocab);

  // Whether a Gumbel draw needs no more than that one token is known to be kept.
  static bool IsLazy(const SelectParams& params, DrawMethod method, const NoiseKey& key);

  // The first tokens of the row and those that are kept of them. False: not decided. It is given
  // up when the budget is too small, not when it is spent.
  bool Keep(CertifiedTokens& first, semantics::Interval& kept);

  // The drawn token: the winner among all, or, where it is certainly dropped, among those before
  // it, and so on. Why it is not decided; kNone: it is.
  DenseReason Draw(CertifiedGumbel& gumbel, int32_t& id);

 private:
  // Computes or refines the open tokens with the largest upper ends, so many that the doubt about
  // all others is no more than the next share of the row's mass. False: they are too many.
  bool Narrow();
  semantics::Membership MembershipOf(const semantics::Token& token);

  RowCertificate& certificate_;
  const SelectParams& params_;
  const NoiseKey& key_;
  const semantics::Token first_;
  const float scale_;
  const int64_t vocab_;
  double share_;             // of the mass, that the next step leaves open
  uint64_t least_mass_ = 0;  // of the row, as far as the last question established it
};

}  // namespace sluice
