// The decisions that the first tokens of a row allow: the rules of semantics/select.h on the part
// of a row that ranks list, and where that part says too little.
//
// `first` are the first tokens of the whole row in the total order; is_all is true if there are no
// others that are not masked. Rules that only look at what a rule before them kept need no more
// than that. The mass of the rest of the row is an argument.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "semantics/draw/draw.h"
#include "semantics/filters/filter_class.h"
#include "semantics/filters/nucleus.h"

namespace sluice {

// The exchange that a row still needs in addition to the list.
enum class RowNeed : uint8_t {
  kNothing,
  kMass,   // of the tokens that top-p is measured on
  kSlice,  // the draw of each rank from its slice: all tokens of a least weight are kept
  kRow,    // the whole row
};

// The least weight that min-p leaves before top-k, and the one that it leaves at the end.
inline uint64_t LeastWeightBefore(const SelectParams& params) {
  const bool is_before = Has(semantics::RulesOf(params), semantics::Filter::kMinP);
  return is_before ? semantics::Fixed40(params.min_p) : 0;
}
inline uint64_t LeastWeight(const SelectParams& params) {
  return semantics::Fixed40(params.min_p);  // 0 when it is off
}

// support: how many tokens of the whole row are not masked. Greedy rows do not need it.
inline RowNeed NeedOf(const SelectParams& params, const NoiseKey& key, int64_t support) {
  using semantics::Filter;
  const semantics::RuleSet rules = semantics::RulesOf(params, key, support);
  if (!IsWithin(rules, semantics::kRulesOfFirst)) return RowNeed::kRow;
  const bool has_top_k = Has(rules, Filter::kTopK);
  if (Has(rules, Filter::kTopP)) {
    return has_top_k && !IsJoint(rules, params.profile) ? RowNeed::kRow : RowNeed::kMass;
  }
  return has_top_k || Has(rules, Filter::kXtc) ? RowNeed::kRow : RowNeed::kSlice;
}

// The kept interval, if no token after the list has a say in it.
inline std::optional<semantics::Interval> SelectFromFirst(semantics::SortedRow first, bool is_all,
                                                          const SelectParams& params,
                                                          const NoiseKey& key) {
  semantics::SelectTrace trace;
  const semantics::Interval kept = semantics::SelectInterval(first, params, key, &trace);
  const semantics::RuleSet rules = semantics::RulesOf(params);
  if (is_all || Has(rules, semantics::Filter::kGreedy)) return kept;
  if (!IsWithin(rules, semantics::kRulesOfFirst)) return std::nullopt;
  const auto after = [&trace](semantics::Filter filter) {
    return trace.after[static_cast<int>(filter)].end;
  };
  // Weights fall along the list, so min-p has dropped every token after the one it ended at.
  if (after(semantics::Filter::kMinP) < first.size) return kept;
  const bool is_cut =
      Has(rules, semantics::Filter::kTopK) && params.top_k <= first.size &&
      (params.profile.ties == Ties::kLowestId || after(semantics::Filter::kTopK) < first.size);
  if (is_cut && !IsJoint(rules, params.profile)) return kept;
  return std::nullopt;
}

// One of the kept tokens. `by_id` is memory for them.
inline int32_t DrawListed(semantics::SortedRow first, semantics::Interval kept, float scale,
                          DrawMethod method, const NoiseKey& key,
                          std::vector<semantics::Token>& by_id) {
  if (method == DrawMethod::kGumbel) {
    semantics::Winner best{0.0f, {0.0f, -1}};
    for (int64_t i = kept.begin; i < kept.end; ++i) {
      const semantics::Token& token = first.tokens[i];
      const float g =
          semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), token.id));
      const semantics::Winner candidate{semantics::LogWeight(token.x, first.Max(), scale) + g,
                                        token};
      if (semantics::Beats(candidate, best)) best = candidate;
    }
    return best.token.id;
  }
  const uint64_t mass = semantics::MassOf(first, kept, scale);
  if (mass == 0) return first.tokens[kept.begin].id;
  by_id.assign(first.tokens + kept.begin, first.tokens + kept.end);
  std::sort(by_id.begin(), by_id.end(),
            [](const semantics::Token& a, const semantics::Token& b) { return a.id < b.id; });
  const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
  uint64_t running = 0;
  for (const semantics::Token& token : by_id) {
    running += semantics::Weight(token.x, first.Max(), scale);
    if (running > threshold) return token.id;
  }
  return -1;  // not reached: the threshold is below the mass
}

}  // namespace sluice
