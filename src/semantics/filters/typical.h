// Typical sampling: keep the tokens with a surprise nearest to the mean surprise, until they hold a
// share p of the mass.
//
// In fixed point, over tokens with W > 0, w = W >> 16:
//   a_i = rint(-t_i * 2^12), h = floor(sum(w a) / sum(w)), key_i = |a_i - h|.
// K is the least key such that the tokens with key <= K hold mass >= target; all of those are kept.
// a never falls as x falls, so |a - h| <= K is an interval of the order.
#pragma once

#include "semantics/filters/top_p.h"

namespace sluice::semantics {

SLUICE_HD inline int64_t Surprise(float t) { return static_cast<int64_t>(rintf(-t * 4096.0f)); }

SLUICE_HD inline int64_t TypicalKey(float t, int64_t mean) {
  const int64_t difference = Surprise(t) - mean;
  return difference < 0 ? -difference : difference;
}

// What the tokens of an interval have in common. `end` is one past the last one with W > 0.
struct TypicalMoments {
  int64_t mean;
  uint64_t total;
  int64_t end;
};

SLUICE_HD inline TypicalMoments TypicalMomentsOf(SortedRow row, Interval kept, float scale) {
  uint64_t weighted_surprise = 0;  // below 2^24 * 2^12 * 2^23: w * a peaks at a = 2^12 / ln 2
  uint64_t weights = 0;
  uint64_t total = 0;
  int64_t end = kept.begin;
  for (; end < kept.end; ++end) {
    const float t = LogWeight(row.tokens[end].x, row.Max(), scale);
    const uint64_t w = WeightOf(t);
    if (w == 0) break;
    weighted_surprise += (w >> 16) * static_cast<uint64_t>(Surprise(t));
    weights += w >> 16;
    total += w;
  }
  return {static_cast<int64_t>(weighted_surprise / weights), total, end};
}

// p < 1.
SLUICE_HD inline Interval Typical(SortedRow row, Interval kept, float p, float scale) {
  const TypicalMoments moments = TypicalMomentsOf(row, kept, scale);
  const uint64_t target = TargetMass(p, moments.total);
  auto key = [&](int64_t i) {
    return TypicalKey(LogWeight(row.tokens[i].x, row.Max(), scale), moments.mean);
  };

  // Grow an interval from the token nearest to the mean, always on the side of the smaller key,
  // until it holds the target; then take all further tokens of the last key.
  int64_t nearest = kept.begin;
  while (nearest + 1 < moments.end && key(nearest + 1) <= key(nearest)) ++nearest;
  Interval grown{nearest, nearest + 1};
  uint64_t mass = Weight(row.tokens[nearest].x, row.Max(), scale);
  int64_t largest_key = key(nearest);
  for (;;) {
    const bool can_grow_up = grown.begin > kept.begin;
    const bool can_grow_down = grown.end < moments.end;
    if (!can_grow_up && !can_grow_down) break;
    const bool up = can_grow_up && (!can_grow_down || key(grown.begin - 1) <= key(grown.end));
    const int64_t next = up ? grown.begin - 1 : grown.end;
    if (mass >= target && key(next) > largest_key) break;
    largest_key = key(next);
    mass += Weight(row.tokens[next].x, row.Max(), scale);
    up ? --grown.begin : ++grown.end;
  }
  return grown;
}

}  // namespace sluice::semantics
