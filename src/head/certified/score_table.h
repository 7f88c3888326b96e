// What a backend provides for the planes: a score and a half width for every row of the head. The
// arithmetic is integer sums, which no order changes, and a fixed order of fp32 operations, so the
// intervals of all backends are the same, bit for bit:
//
//   y = fma(sum of q h^ / scale, scale, dither);  a = fma(s_g, y, a);  v2 = fma(s_g s_g, n_g^2, v2)
//
// group by group, then a + bias and HalfWidth (bound.h). Refined: the sum of the low codes by
// itself, with s_g / 16, and added to the score.
#pragma once

#include <span>

#include "head/certified/hidden_codes.h"
#include "head/certified/mass_bounds.h"
#include "head/certified/planes.h"
#include "sluice/execution.hpp"

namespace sluice {

// The scores of one hidden state and their half widths, a whole number of tiles of both.
struct Intervals {
  float* scores = nullptr;
  float* widths = nullptr;
};

struct ScoreTable {
  // bias: empty, or one a row of the head. states and intervals: as many.
  void (*score)(const PlaneView&, std::span<const float> bias, std::span<const HiddenState> states,
                std::span<const Intervals> intervals, int64_t begin_tile, int64_t end_tile);
  // From the score of a row of strict planes to that of both planes.
  void (*refine)(const PlaneView&, const HiddenState&, int64_t row, const Intervals&);
  // Of the first `size` intervals, a whole number of tiles, all of which have ends.
  MassBounds (*around)(const Intervals&, int64_t size, const MassQuestion&);
};

extern const ScoreTable kScoreRef;
extern const ScoreTable kScoreAvx2;
extern const ScoreTable kScoreAvx512;      // of any processor with AVX-512
extern const ScoreTable kScoreAvx512Vnni;  // of one that multiplies bytes as well

const ScoreTable& ScoreTableFor(Backend backend);

// The fastest of those that run here comes last; for tests of all of them.
std::span<const ScoreTable* const> ScoreTables();

}  // namespace sluice
