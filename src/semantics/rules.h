// The rules of stages 10 to 15: which of them are on, and their order. Both are written here and
// nowhere else.
//
//   10 greedy: T == 0 keeps the first token, done
//   12 min-p, top-n-sigma, typical
//   13 top-k          14 top-p on the survivors (or both on the survivors of 12: joint)
//   (min-p here instead, in profiles that have it last)
//   15 XTC
//
// A token that one rule dropped does not exist for the later rules.
//
// An implementation supplies every rule to ApplyRules: semantics/select.h (the definition),
// select/cpu/select_list-inl.h, select/cuda/row_rules.cuh, parallel/select_shards.h. Faster ways
// cover some of the rules: each declares which as a RuleSet, and takes a row only if no other rule
// is on. So a rule that is added here works everywhere, at first by those four.
#pragma once

#include "semantics/draw/noise.h"
#include "semantics/filters/min_p.h"
#include "semantics/filters/top_n_sigma.h"
#include "semantics/temperature.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

enum class Filter : uint8_t { kGreedy, kMinP, kTopNSigma, kTypical, kTopK, kTopP, kMinPLast, kXtc };
inline constexpr int kFilters = static_cast<int>(Filter::kXtc) + 1;

// A bit a rule.
enum class RuleSet : uint32_t { kNone = 0 };

SLUICE_HD constexpr RuleSet operator|(RuleSet a, RuleSet b) {
  return static_cast<RuleSet>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}

template <class... Filters>
SLUICE_HD constexpr RuleSet Rules(Filters... filters) {
  return static_cast<RuleSet>(((uint32_t{1} << static_cast<int>(filters)) | ...));
}

SLUICE_HD constexpr bool Has(RuleSet rules, Filter filter) {
  return (static_cast<uint32_t>(rules) & static_cast<uint32_t>(Rules(filter))) != 0;
}

SLUICE_HD constexpr bool IsWithin(RuleSet rules, RuleSet covered) {
  return (static_cast<uint32_t>(rules) & ~static_cast<uint32_t>(covered)) == 0;
}

SLUICE_HD constexpr RuleSet If(bool is_on, Filter filter) {
  return is_on ? Rules(filter) : RuleSet::kNone;
}

// The rules that are on, of a row of so many tokens: a top-k that keeps them all is off. XTC is on
// when its coin may fall.
SLUICE_HD constexpr RuleSet RulesOf(const SelectParams& params, int64_t size = INT64_MAX) {
  if (IsGreedy(params)) return Rules(Filter::kGreedy);
  const bool is_min_p_last = params.profile.min_p_stage == MinPStage::kLast;
  return If(params.min_p > 0, is_min_p_last ? Filter::kMinPLast : Filter::kMinP) |
         If(params.top_n_sigma > 0, Filter::kTopNSigma) |
         If(params.typical_p < 1, Filter::kTypical) |
         If(params.top_k > 0 && params.top_k < size, Filter::kTopK) |
         If(params.top_p < 1, Filter::kTopP) |  //
         If(params.xtc_probability > 0, Filter::kXtc);
}

// As above where the noise of the row is known: XTC is off unless its coin falls.
SLUICE_HD inline RuleSet RulesOf(const SelectParams& params, const NoiseKey& key,
                                 int64_t size = INT64_MAX) {
  const RuleSet rules = RulesOf(params, size);
  if (!Has(rules, Filter::kXtc) || XtcCoinFalls(key, params.xtc_probability)) return rules;
  return static_cast<RuleSet>(static_cast<uint32_t>(rules) ^
                              static_cast<uint32_t>(Rules(Filter::kXtc)));
}

// Whether top-k and top-p are measured on the same tokens.
SLUICE_HD constexpr bool IsJoint(RuleSet rules, const Profile& profile) {
  return IsWithin(Rules(Filter::kTopK, Filter::kTopP), rules) &&
         profile.top_k_top_p == TopKTopP::kJoint;
}

// Calls row.After(filter) after each rule, on or off. An implementation keeps the kept set itself.
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
template <class Row>
SLUICE_HD inline void ApplyRules(RuleSet on, const SelectParams& params, Row& row) {
  if (Has(on, Filter::kGreedy)) row.Greedy();
  row.After(Filter::kGreedy);
  if (Has(on, Filter::kMinP)) row.KeepFrom(MinPFloor{params.min_p});
  row.After(Filter::kMinP);
  if (Has(on, Filter::kTopNSigma)) row.KeepFrom(TopNSigmaFloor{params.top_n_sigma});
  row.After(Filter::kTopNSigma);
  if (Has(on, Filter::kTypical)) row.Typical();
  row.After(Filter::kTypical);
  row.BeforeTopK();  // what a joint top-p is measured on
  if (Has(on, Filter::kTopK)) row.TopK();
  row.After(Filter::kTopK);
  if (Has(on, Filter::kTopP)) row.TopP();
  row.After(Filter::kTopP);
  if (Has(on, Filter::kMinPLast)) row.KeepFrom(MinPFloor{params.min_p});
  row.After(Filter::kMinPLast);
  if (Has(on, Filter::kXtc)) row.Xtc();
  row.After(Filter::kXtc);
}

}  // namespace sluice::semantics
