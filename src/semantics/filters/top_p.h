// top-p: walk the total order and keep a token iff the mass strictly before it is below the target;
// at least one. target = ceil(P32 * Z / 2^32), P32 = floor(p * 2^32), Z the mass of the tokens that
// the rule is measured on.
//
// Equal to the textbook set whenever the boundary is further than 4e-6 from p (1e-5 for V > 2^18).
#pragma once

#include "semantics/interval.h"
#include "sluice/profile.hpp"

namespace sluice::semantics {

SLUICE_HD inline uint64_t TargetMass(float p, uint64_t total) {
  const uint128_t product = static_cast<uint128_t>(Fixed32(p)) * total;
  return static_cast<uint64_t>((product + 0xffffffffu) >> 32);
}

// The target at which an exclusive boundary keeps as much as an inclusive one. An inclusive one on
// the whole mass keeps everything, so this can exceed the mass.
SLUICE_HD inline uint64_t ExclusiveTarget(uint64_t target, TopPBoundary boundary) {
  return boundary == TopPBoundary::kInclusive ? target + 1 : target;
}

// Whether a token with this mass strictly before it is kept.
SLUICE_HD inline bool TopPKeeps(uint64_t mass_before, uint64_t target, TopPBoundary boundary) {
  return mass_before < ExclusiveTarget(target, boundary);
}

// Of `ties` tokens of equal weight above 0, with mass_before before them all, how many an exclusive
// boundary keeps: the one with j before it starts at mass_before + j * weight. At least one.
SLUICE_HD inline int64_t TopPTiesKept(uint64_t mass_before, uint64_t weight, int64_t ties,
                                      uint64_t target) {
  const uint64_t missing = target > mass_before ? target - mass_before : 0;
  const uint64_t needed = missing / weight + (missing % weight != 0 ? 1 : 0);
  if (needed == 0) return 1;
  return needed < static_cast<uint64_t>(ties) ? static_cast<int64_t>(needed) : ties;
}

// The walk, to a target that was measured on a set that `kept` is the first part of.
SLUICE_HD inline Interval TopPOfTarget(SortedRow row, Interval kept, uint64_t target, float scale,
                                       const Profile& profile) {
  int64_t end = kept.begin + 1;
  uint64_t mass_before = Weight(row.tokens[kept.begin].x, row.Max(), scale);
  while (end < kept.end && TopPKeeps(mass_before, target, profile.top_p_boundary)) {
    mass_before += Weight(row.tokens[end].x, row.Max(), scale);
    ++end;
  }
  return {kept.begin, profile.ties == Ties::kAll ? EndWithTies(row, end, kept.end) : end};
}

// p < 1; at p == 1 the rule is off and keeps even tokens of weight 0.
SLUICE_HD inline Interval TopP(SortedRow row, Interval kept, float p, float scale,
                               const Profile& profile) {
  return TopPOfTarget(row, kept, TargetMass(p, MassOf(row, kept, scale)), scale, profile);
}

}  // namespace sluice::semantics
