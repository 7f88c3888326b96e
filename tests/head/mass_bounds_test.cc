// What intervals say of the mass around a value: the definition on every backend, and ends that
// hold the mass of the logits.
#include <gtest/gtest.h>

#include "head/certified/score_table.h"
#include "semantics/temperature.h"
#include "tests/head/intervals.h"

namespace sluice::test {
namespace {

struct SomeIntervals {
  std::vector<float> scores;
  std::vector<float> widths;
  std::vector<float> logits;  // within

  Intervals view() { return {scores.data(), widths.data()}; }
};

// Of values on a coarse grid, so that many ends meet; some computed, some masked.
SomeIntervals MakeIntervals(int64_t size, Random& random) {
  SomeIntervals made;
  const double width = random.Coin() ? 0.5 : 4.0;
  for (int64_t v = 0; v < size; ++v) {
    const auto logit = static_cast<float>(std::rint(16.0 * random.Normal()) / 4.0);
    const bool is_masked = random.Coin(0.1);
    const bool is_exact = is_masked || random.Coin(0.3);
    const auto half = static_cast<float>(std::rint(width * 8.0 * random.Uniform()) / 8.0 + 0.125);
    const auto off = static_cast<float>(2.0 * random.Uniform() - 1.0);
    made.logits.push_back(is_masked ? -INFINITY : logit);
    made.scores.push_back(is_exact ? made.logits.back() : logit + off * half);
    made.widths.push_back(is_exact ? 0.0f : half + 0x1p-18f);
  }
  return made;
}

std::vector<uint64_t> NumbersOf(const MassBounds& around) {
  return {around.above.least,
          around.above.most,
          around.rest.least,
          around.rest.most,
          around.tokens.least,
          around.tokens.most,
          static_cast<uint64_t>(around.ties)};
}

TEST(MassBounds, IsTheSameOnEveryBackend) {
  Random random(1);
  const std::vector<float> temperatures = {0.01f, 0.7f, 1.0f, 5.0f};
  for (int n = 0; n < 300; ++n) {
    // Above 2048 vectors their sums are emptied in between; of 16 floats at most.
    const int64_t size = kTileRows * (n % 50 == 0 ? 2500 : random.Between(1, 20));
    SomeIntervals made = MakeIntervals(size, random);
    const float max = *std::max_element(made.logits.begin(), made.logits.end());
    if (max == -INFINITY) continue;
    const float x = random.Coin(0.1) ? INFINITY : random.Pick(made.logits);
    const float scale = semantics::TemperatureScale(random.Pick(temperatures));
    const auto expected = NumbersOf(kScoreRef.around(made.view(), size, {x, max, scale}));
    for (const ScoreTable* table : ScoreTables()) {
      EXPECT_EQ(NumbersOf(table->around(made.view(), size, {x, max, scale})), expected)
          << n << " " << size << " " << x;
    }
  }
}

TEST(MassBounds, HoldsTheMassOfTheLogits) {
  Random random(2);
  for (int n = 0; n < 300; ++n) {
    const int64_t size = kTileRows * random.Between(1, 20);
    SomeIntervals made = MakeIntervals(size, random);
    const float max = *std::max_element(made.logits.begin(), made.logits.end());
    if (max == -INFINITY) continue;
    const float scale = semantics::TemperatureScale(n % 2 == 0 ? 1.0f : 3.0f);
    const float x = random.Coin(0.1) ? INFINITY : random.Pick(made.logits);
    uint64_t above = 0, rest = 0, tokens = 0;
    uint64_t open_ties = 0;  // which count as above at most, or as rest
    int64_t ties = 0;
    for (size_t v = 0; v < made.logits.size(); ++v) {
      const uint64_t weight = semantics::Weight(made.logits[v], max, scale);
      const bool is_tie = made.logits[v] == x;
      if (is_tie && made.widths[v] == 0.0f) {
        ++ties;
      } else if (made.logits[v] > x) {
        above += weight;
        ++tokens;
      } else {
        rest += weight;
        if (is_tie) open_ties += weight;
      }
    }
    const MassBounds around = ScoreTables().back()->around(made.view(), size, {x, max, scale});
    EXPECT_EQ(around.ties, ties);
    EXPECT_LE(around.above.least, above);
    EXPECT_GE(around.above.most, above + open_ties);
    EXPECT_LE(around.rest.least, rest - open_ties);
    EXPECT_GE(around.rest.most, rest);
    EXPECT_LE(around.tokens.least, tokens);
    EXPECT_GE(around.tokens.most, tokens);
  }
}

// As narrow as can be where everything is known.
TEST(MassBounds, IsExactWhereAllIsComputed) {
  Random random(3);
  SomeIntervals made = MakeIntervals(320, random);
  made.scores = made.logits;
  made.widths.assign(made.widths.size(), 0.0f);
  const float max = *std::max_element(made.logits.begin(), made.logits.end());
  for (const ScoreTable* table : ScoreTables()) {
    const MassBounds around = table->around(made.view(), 320, {made.logits[7], max, 1.0f});
    EXPECT_EQ(around.above.least, around.above.most);
    EXPECT_EQ(around.rest.least, around.rest.most);
    EXPECT_EQ(around.tokens.least, around.tokens.most);
  }
}

}  // namespace
}  // namespace sluice::test
