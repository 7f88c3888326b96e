// Top-p where not all weights of a row are known: the kept interval from the first tokens and the
// mass of all, and whether a token is kept when masses are known between two ends.
#pragma once

#include <optional>

#include "semantics/select.h"

namespace sluice::semantics {

// The rules that SelectByMass applies. A min-p before top-k keeps all known tokens, and the mass is
// of what it keeps; top-k is joint with top-p.
inline constexpr RuleSet kSelectedByMass =
    Rules(Filter::kMinP, Filter::kTopK, Filter::kTopP, Filter::kMinPLast, Filter::kXtc);

// The kept interval of a row with top-p of which only the first tokens are known, and the mass of
// those that top-p is measured on. None: tokens after the known ones may be kept.
inline std::optional<Interval> SelectByMass(SortedRow first, const SelectParams& params,
                                            const NoiseKey& key, uint64_t total) {
  const RuleSet rules = RulesOf(params, key);
  if (!IsWithin(rules, kSelectedByMass)) return std::nullopt;
  const Profile& profile = params.profile;
  const float scale = ScalesOf(params).filter;
  const uint64_t target = TargetMass(params.top_p, total);
  const Interval listed{0, first.size};
  Interval kept = TopPOfTarget(first, listed, target, scale, profile);
  if (kept.end == first.size) {
    const uint64_t mass = MassOf(first, listed, scale);
    if (profile.ties == Ties::kAll || TopPKeeps(mass, target, profile.top_p_boundary)) {
      return std::nullopt;
    }
  }
  if (Has(rules, Filter::kTopK)) {
    const int64_t end = TopK(first, listed, params.top_k, profile).end;
    kept.end = end < kept.end ? end : kept.end;
  }
  if (Has(rules, Filter::kMinPLast)) {
    kept = KeepFromFloor(first, kept, MinPThreshold(params.min_p, first.Max(), scale));
  }
  if (Has(rules, Filter::kXtc)) kept = Xtc(first, kept, params.xtc_threshold, scale);
  return kept;
}

// A mass, or a number of tokens, that is known between two ends.
struct Between {
  uint64_t least = 0;
  uint64_t most = 0;
};

enum class Membership : uint8_t { kKept, kDropped, kUnknown };

// Decides a token with `above` before it in the total order and `rest` from itself on. It is kept
// iff above < target(above + rest): one unit more above it moves the target by at most one, and one
// unit more of the rest never moves it down, so the ends of both decide for all in between.
inline Membership TopPMembership(const Between& above, const Between& rest, float p,
                                 TopPBoundary boundary) {
  const auto keeps = [&](uint64_t before, uint64_t others) {
    return TopPKeeps(before, TargetMass(p, before + others), boundary);
  };
  if (keeps(above.most, rest.least)) return Membership::kKept;
  return keeps(above.least, rest.most) ? Membership::kUnknown : Membership::kDropped;
}

}  // namespace sluice::semantics
