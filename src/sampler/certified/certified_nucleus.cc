#include "sampler/certified/certified_nucleus.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice {

using semantics::Between;
using semantics::Interval;
using semantics::Membership;
using semantics::SortedRow;
using semantics::Token;

namespace {

// The shares of the mass that are left open, one after the other, until nothing is that weighs.
// Steps are wide: to look at all tokens again takes longer than to compute a thousand.
constexpr double kFirstShare = 0x1p-5;
constexpr double kNextShare = 0x1p-5;  // of the one before
constexpr double kLastShare = 0x1p-64;

// Of so few tokens of a vocabulary, the logits take no longer than the second plane.
constexpr int64_t kFewOf = 64;

// Quarters of an octave of weight, down to the least one above 0.
constexpr int kBins = 4 * 40 + 1;

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
      share_(kFirstShare) {}

bool CertifiedNucleus::IsLazy(const SelectParams& params, DrawMethod method, const NoiseKey& key) {
  return method == DrawMethod::kGumbel &&
         !Has(semantics::RulesOf(params, key), semantics::Filter::kXtc);
}

bool CertifiedNucleus::Narrow() {
  const float* const scores = certificate_.intervals().scores;
  const float* const widths = certificate_.intervals().widths;
  // Of open tokens by the weight of their upper ends: how many, and how many of that weight their
  // doubt comes to, which is the weight less that of the lower end.
  int32_t counts[kBins] = {};
  float doubts[kBins] = {};
  const float octave_doubt = 2.0f * 0.6931472f * scale_;
  const float quarters = -4.0f * scale_;
  constexpr float kLastBin = kBins - 1;
  for (int64_t v = 0; v < vocab_; ++v) {
    if (widths[v] == 0.0f) continue;
    const float below = (scores[v] + widths[v] - first_.x) * quarters;
    const int bin = static_cast<int>(std::clamp(below, 0.0f, kLastBin));
    ++counts[bin];
    doubts[bin] += std::min(1.0f, widths[v] * octave_doubt);
  }
  const auto doubt_of = [&](int bin) {
    return static_cast<double>(doubts[bin]) * std::exp2(40.0 - 0.25 * bin);
  };
  for (; share_ >= kLastShare; share_ *= kNextShare) {
    double left = static_cast<double>(least_mass_) * share_;
    int end = kBins - 1;  // of the bins to compute; the last one has no weight to speak of
    while (end > 0 && left >= doubt_of(end - 1)) left -= doubt_of(--end);
    const int64_t wanted = std::accumulate(counts, counts + end, int64_t{0});
    if (wanted == 0) continue;
    const float least = first_.x + static_cast<float>(end) / quarters;
    if (wanted > vocab_ / kFewOf && certificate_.RefineFrom(least)) return true;
    if (wanted > certificate_.Room()) return false;
    certificate_.ComputeFrom(least);
    share_ *= kNextShare;
    return true;
  }
  return false;
}

bool CertifiedNucleus::Keep(CertifiedTokens& first, Interval& kept) {
  do {
    first = certificate_.ComputedAbove(certificate_.LargestOpen());
    const SortedRow sorted{first.data, first.size};
    if (first.HasAll()) {
      kept = semantics::SelectInterval(sorted, params_, key_);
      return true;
    }
    const Between mass = certificate_.Around({semantics::Infinity(), first_.x, scale_}).rest;
    least_mass_ = mass.least;
    if (sorted.size == 0) continue;
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
  const bool keeps_ties = params_.profile.ties == Ties::kAll;
  // Kept whatever the target is.
  if (token.id == first_.id || (keeps_ties && token.x == first_.x)) return Membership::kKept;
  const MassBounds around = certificate_.Around({token.x, first_.x, scale_});
  int64_t ties_before = 0;  // of tokens that are computed; open ones count as above
  if (around.ties > 1 && !keeps_ties) {
    const Intervals& of = certificate_.intervals();
    for (int32_t id = 0; id < token.id; ++id) {
      ties_before += of.widths[id] == 0.0f && of.scores[id] == token.x ? 1 : 0;
    }
  }
  const uint64_t weight = semantics::Weight(token.x, first_.x, scale_);
  least_mass_ =
      around.above.least + around.rest.least + static_cast<uint64_t>(around.ties) * weight;
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
  if (weight < semantics::Fixed40(params_.min_p)) return Membership::kDropped;
  return membership;
}

DenseReason CertifiedNucleus::Draw(CertifiedGumbel& gumbel, int32_t& id) {
  Token winner;
  if (!gumbel.Draw(nullptr, winner)) return DenseReason::kSurvivors;
  for (;;) {
    const Membership membership = MembershipOf(winner);
    if (membership == Membership::kUnknown) {
      if (Narrow()) continue;
      // Not all of what matters, but most of it may do.
      if (certificate_.ComputeLargest(certificate_.Room())) continue;
      if (!certificate_.RaiseBudget()) return DenseReason::kMass;
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
