#include "pipeline/certified_nucleus.h"

#include <algorithm>
#include <cmath>

namespace sluice {

using semantics::Between;
using semantics::Interval;
using semantics::Membership;
using semantics::SortedRow;
using semantics::Token;

namespace {

constexpr int64_t kFirstStep = 64;  // tokens, and each step takes four times as many

// All tokens whose second plane is not read may have 2^-10 of the mass together.
constexpr float kOctavesLeftOut = 10.0f;

Between operator+(const Between& a, uint64_t b) { return {a.least + b, a.most + b}; }

// Of what two rules say that both must keep.
Membership Both(Membership a, Membership b) {
  if (a == Membership::kDropped || b == Membership::kDropped) return Membership::kDropped;
  return a == Membership::kKept ? b : a;
}

}  // namespace

CertifiedNucleus::CertifiedNucleus(RowCertificate& certificate, const SelectParams& params,
                                   const NoiseKey& key, const Token& first, int64_t vocab)
    : certificate_(certificate),
      params_(params),
      key_(key),
      first_(first),
      scale_(semantics::ScalesOf(params).filter),
      vocab_(vocab),
      next_(kFirstStep) {}

bool CertifiedNucleus::IsLazy(const SelectParams& params, DrawMethod method, const NoiseKey& key) {
  return method == DrawMethod::kGumbel && !semantics::XtcDrops(params, key);
}

// A few logits first: where they have nearly all the mass, that is the end of it.
bool CertifiedNucleus::Narrow() {
  if (next_ > kFirstStep) {
    const float octaves = std::log2(static_cast<float>(vocab_)) + kOctavesLeftOut;
    if (certificate_.RefineFrom(first_.x - octaves / scale_)) return true;
  }
  const bool is_narrower = certificate_.ComputeLargest(next_);
  next_ *= 4;
  return is_narrower;
}

bool CertifiedNucleus::Keep(TopTokens& first, Interval& kept) {
  do {
    const float open = certificate_.LargestOpen();
    first = certificate_.ComputedAbove(open);
    const SortedRow sorted{first.tokens.data(), std::ssize(first.tokens)};
    if (open == -semantics::Infinity()) {
      kept = semantics::SelectInterval(sorted, params_, key_);
      return true;
    }
    if (sorted.size == 0) continue;
    const Between mass =
        certificate_.Around({semantics::Infinity(), first_.x, scale_}).rest;
    const auto least = semantics::SelectByMass(sorted, params_, key_, mass.least);
    const auto most = semantics::SelectByMass(sorted, params_, key_, mass.most);
    if (!least.has_value() || !most.has_value()) continue;
    if (least->begin != most->begin || least->end != most->end) continue;
    kept = *least;
    return true;
  } while (Narrow());
  return false;
}

Membership CertifiedNucleus::MembershipOf(const Token& token) {
  if (token.id == first_.id) return Membership::kKept;
  const MassAround around = certificate_.Around({token.x, first_.x, scale_});
  const bool keeps_ties = params_.profile.ties == Ties::kAll;
  int64_t ties_before = 0;  // of tokens that are computed; open ones count as above
  if (around.ties > 1 && !keeps_ties) {
    const Intervals& of = certificate_.intervals();
    for (int32_t id = 0; id < token.id; ++id) {
      ties_before += of.widths[id] == 0.0f && of.scores[id] == token.x ? 1 : 0;
    }
  }
  const uint64_t weight = semantics::Weight(token.x, first_.x, scale_);
  Membership membership = semantics::TopPMembership(
      around.above + static_cast<uint64_t>(ties_before) * weight,
      around.rest + static_cast<uint64_t>(around.ties - ties_before) * weight, params_.top_p,
      params_.profile.top_p_boundary);
  if (params_.top_k > 0) {  // joint
    const auto k = static_cast<uint64_t>(params_.top_k);
    const Between before = around.tokens + static_cast<uint64_t>(ties_before);
    membership = Both(membership, before.most < k     ? Membership::kKept
                                  : before.least >= k ? Membership::kDropped
                                                      : Membership::kUnknown);
  }
  if (params_.min_p > 0 && weight < semantics::Fixed40(params_.min_p)) return Membership::kDropped;
  return membership;
}

DenseReason CertifiedNucleus::Draw(CertifiedGumbel& gumbel, int32_t& id) {
  Token winner;
  if (!gumbel.Draw(nullptr, winner)) return DenseReason::kSurvivors;
  for (;;) {
    const Membership membership = MembershipOf(winner);
    if (membership == Membership::kUnknown) {
      if (!Narrow()) return DenseReason::kMass;
    } else if (membership == Membership::kKept) {
      id = winner.id;
      return DenseReason::kNone;
    } else {
      const Token end = winner;
      if (!gumbel.Draw(&end, winner)) return DenseReason::kSurvivors;
    }
  }
}

}  // namespace sluice
