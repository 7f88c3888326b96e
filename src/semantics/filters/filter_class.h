// Which tokens decide a row's kept set and draw; the logits of the others need not be computed.
#pragma once

#include <cstdint>

#include "semantics/filters/nucleus.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

enum class FilterClass : uint8_t {
  kFirst,    // the first k in the total order
  kLikely,   // all that min-p keeps
  kSoftmax,  // all, by a Gumbel draw
  kMass,     // all, by their mass
};

// The rules that look at no token that one before them dropped.
inline constexpr RuleSet kRulesOfFirst = Rules(Filter::kGreedy, Filter::kMinP, Filter::kTopK,
                                               Filter::kTopP, Filter::kMinPLast, Filter::kXtc);

// Every rule after the first that bounds the set looks at no other token: top-p is measured on the
// survivors of top-k (unless both are tested jointly), XTC on what is kept.
SLUICE_HD inline FilterClass FilterClassOf(RuleSet rules, const Profile& profile,
                                           DrawMethod method) {
  if (Has(rules, Filter::kGreedy)) return FilterClass::kFirst;
  if (!IsWithin(rules, kRulesOfFirst)) return FilterClass::kMass;
  if (Has(rules, Filter::kTopK) && !IsJoint(rules, profile)) return FilterClass::kFirst;
  const bool has_top_p = Has(rules, Filter::kTopP);
  if (Has(rules, Filter::kMinP) || (Has(rules, Filter::kMinPLast) && !has_top_p)) {
    return FilterClass::kLikely;
  }
  const bool is_whole = !has_top_p && !Has(rules, Filter::kXtc);
  return is_whole && method == DrawMethod::kGumbel ? FilterClass::kSoftmax : FilterClass::kMass;
}
SLUICE_HD inline FilterClass FilterClassOf(const SelectParams& params, DrawMethod method,
                                           int64_t vocab) {
  return FilterClassOf(RulesOf(params, vocab), params.profile, method);
}

// The tokens for a row with known noise: XTC with a coin that does not fall is no rule.
inline FilterClass FilterClassOf(const SelectParams& params, const NoiseKey& key, DrawMethod method,
                                 int64_t vocab) {
  return FilterClassOf(RulesOf(params, key, vocab), params.profile, method);
}

// Of kMass: top-p decides, so the first tokens may, if the mass of the others is known well enough.
SLUICE_HD inline bool IsNucleus(const SelectParams& params) {
  const RuleSet rules = RulesOf(params);
  return Has(rules, Filter::kTopP) && IsWithin(rules, kRulesOfFirst);
}

}  // namespace sluice::semantics
