// Checks the intervals of planes against the logits that they promise to hold.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "head/certified/hidden_codes.h"
#include "head/certified/planes.h"
#include "head/certified/score_table.h"
#include "semantics/dot.h"
#include "tests/head/heads.h"

namespace sluice::test {

struct ScoredRow {
  std::vector<float> scores;
  std::vector<float> widths;
};

// Of one hidden state; refined: from both planes of strict ones.
inline std::vector<ScoredRow> Scored(const ScoreTable& table, const HeadPlanes& planes,
                                     std::span<const float> bias, const MatrixView& hidden,
                                     bool is_refined = false) {
  const PlaneView view = PlaneAccess::View(planes);
  const size_t count = static_cast<size_t>(hidden.rows);
  const size_t width = static_cast<size_t>(view.tiles() * kTileRows);
  std::vector<ScoredRow> rows(count, {std::vector<float>(width), std::vector<float>(width)});
  std::vector<HiddenGroup> groups(count * static_cast<size_t>(view.groups));
  std::vector<HiddenState> states(count);
  std::vector<Intervals> intervals;
  for (size_t r = 0; r < count; ++r) {
    EXPECT_TRUE(EncodeHidden({hidden.Row(static_cast<int64_t>(r)), hidden.dtype, hidden.columns},
                             view, &groups[r * static_cast<size_t>(view.groups)], states[r]));
    intervals.push_back({rows[r].scores.data(), rows[r].widths.data()});
  }
  table.score(view, bias, states, intervals, 0, view.tiles());
  for (size_t r = 0; is_refined && r < count; ++r) {
    for (int64_t v = 0; v < view.vocab; ++v) table.refine(view, states[r], v, intervals[r]);
  }
  return rows;
}

// How far each defined logit lies from its score, in half widths: the largest. Above 1 an interval
// is wrong. An interval without an end holds everything.
inline double WorstError(const ScoredRow& scored, const MatrixView& weight,
                         std::span<const float> bias, const semantics::Row& hidden) {
  double worst = 0.0;
  for (int64_t v = 0; v < weight.rows; ++v) {
    const float dot = semantics::Dot({weight.Row(v), weight.dtype, weight.columns}, hidden);
    const float x = bias.empty() ? dot : dot + bias[static_cast<size_t>(v)];
    const auto at = static_cast<size_t>(v);
    if (!(scored.widths[at] < INFINITY)) continue;
    const double error = std::fabs(static_cast<double>(x) - static_cast<double>(scored.scores[at]));
    const double width = static_cast<double>(scored.widths[at]);
    const double ratio = error / width;
    if (!(ratio <= worst)) worst = ratio;  // a NaN is the worst
  }
  return worst;
}

}  // namespace sluice::test
