// Known answers: what selection must give, case by case. The numbers are names that stay; the gaps
// are cases that other tests hold. [..] are probabilities, that is, logits of their logarithms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "semantics/filters/top_p.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using Values = std::vector<float>;
using Ids = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

Values Logs(std::initializer_list<double> probabilities) {
  Values logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<Ids> Kept(const Batch& batch, const std::vector<SelectParams>& params) {
  return KeptIds(batch.view(), Selected({batch.view(), params, std::vector<NoiseKey>(1)}).cuts);
}
Ids Kept(const Values& row, const SelectParams& params) { return Kept(Batch({row}), {params})[0]; }

Ids Range(int32_t begin, int32_t end) {
  Ids ids(static_cast<size_t>(end - begin));
  std::iota(ids.begin(), ids.end(), begin);
  return ids;
}

// Case 1 | L = [1, 3, 3, 2], T = 0 | token 1
TEST(SelectCases, GreedyTakesTheLowerIdOfATie) {
  EXPECT_EQ(Kept({1, 3, 3, 2}, {.temperature = 0.0f}), Ids({1}));
}

// Case 2 | L = [0, -0, -1], T = 0 | token 0; and with the signs exchanged
TEST(SelectCases, GreedyTakesBothZerosAsEqual) {
  EXPECT_EQ(Kept({0.0f, -0.0f, -1}, {.temperature = 0.0f}), Ids({0}));
  EXPECT_EQ(Kept({-0.0f, 0.0f, -1}, {.temperature = 0.0f}), Ids({0}));
}

// Case 4 | all -inf | empty_support, no token
TEST(SelectCases, FullyMaskedRowIsEmptySupport) {
  const Batch batch({{-kInf, -kInf, -kInf}});
  for (const float temperature : {0.0f, 1.0f}) {
    const SelectParams params{.temperature = temperature};
    const NoiseKey key;
    const TokenResult result = Sampled({batch.view(), {&params, 1}, {&key, 1}})[0];
    EXPECT_EQ(result.status, RowStatus::kEmptySupport);
    EXPECT_EQ(result.id, -1);
  }
}

// Case 14 | [.4, .3, .2, .1], k = 2, p = .5 | {0}, for .4 / .7 >= .5; joint {0, 1}
TEST(SelectCases, TopPIsMeasuredOnTheSurvivorsOfTopKUnlessJoint) {
  const Values row = Logs({.4, .3, .2, .1});
  EXPECT_EQ(Kept(row, {.top_k = 2, .top_p = 0.5f}), Ids({0}));
  EXPECT_EQ(Kept(row, {.top_k = 2, .top_p = 0.5f, .profile = {.top_k_top_p = TopKTopP::kJoint}}),
            Ids({0, 1}));
}

// Case 16 | weights 4 : 2 : 1 : 1, p = .75 | {0, 1}; inclusive {0, 1, 2}
TEST(SelectCases, TokenThatStartsExactlyAtTheTargetIsDroppedUnlessInclusive) {
  constexpr float kLn2 = 0x1.62e43p-1f;
  const Values row = {0, -kLn2, -2 * kLn2, -2 * kLn2};
  const float scale = semantics::TemperatureScale(1.0f);
  const uint64_t one = semantics::kFullWeight / 4;  // the weights are exact
  EXPECT_EQ(semantics::Weight(row[1], 0, scale), 2 * one);
  EXPECT_EQ(semantics::Weight(row[2], 0, scale), one);
  EXPECT_EQ(semantics::TargetMass(0.75f, 8 * one), 6 * one);
  EXPECT_EQ(Kept(row, {.top_p = 0.75f}), Ids({0, 1}));
  EXPECT_EQ(Kept(row, {.top_p = 0.75f, .profile = {.top_p_boundary = TopPBoundary::kInclusive}}),
            Ids({0, 1, 2}));
}

// Case 17 | [.4, .2, .2, .2], p = .5 | {0, 1}; ties = all: every token
TEST(SelectCases, TopPKeepsTheLowestIdsOfATieUnlessAllAreAskedFor) {
  const Values row = Logs({.4, .2, .2, .2});
  EXPECT_EQ(Kept(row, {.top_p = 0.5f}), Ids({0, 1}));
  EXPECT_EQ(Kept(row, {.top_p = 0.5f, .profile = {.ties = Ties::kAll}}), Ids({0, 1, 2, 3}));
}

// Case 19 | L = [-inf, 1, -inf, 0], k = 3, p = .6, among rows with p alone | {1}, for .7311 >= .6
TEST(SelectCases, TopKAboveTheSupportKeepsItInAMixedBatch) {
  const Values row = {-kInf, 1, -kInf, 0};
  const SelectParams p_only{.top_p = 0.6f};
  const SelectParams both{.top_k = 3, .top_p = 0.6f};
  const Batch batch({row, row, row});
  EXPECT_EQ(Kept(batch, {p_only, both, p_only}), std::vector<Ids>(3, Ids({1})));
  EXPECT_EQ(Kept(row, {.top_k = 3}), Ids({1, 3}));
}

// Case 20 | 1024 equal logits, p = .5, batch 1 and batch 65 | ids 0 .. 511 both times
TEST(SelectCases, TopPOfEqualLogitsIsTheLowerHalfInEveryBatch) {
  const Values row(1024, 0.3f);
  EXPECT_EQ(Kept(row, {.top_p = 0.5f}), Range(0, 512));
  EXPECT_EQ(Kept(Batch(std::vector<Values>(65, row)), {{.top_p = 0.5f}}),
            std::vector<Ids>(65, Range(0, 512)));
}

// Case 22 | V = 32768 zeros but L[20000] = 95, L[20001] = 94.9, p = .5, batch 65 | {20000}
TEST(SelectCases, TopPTellsANearTieFarAboveTheRestInEveryBatch) {
  Values row(32768, 0.0f);
  row[20000] = 95;
  row[20001] = 94.9f;  // .52498 and .47502
  EXPECT_EQ(Kept(Batch(std::vector<Values>(65, row)), {{.top_p = 0.5f}}),
            std::vector<Ids>(65, Ids({20000})));
}

// Case 23 | V = 131072, L_i = -1.1 ln(i + 1), p = .9, .99, .999 | 14781, 103006, 127918 tokens.
// The nearest running sums are 8e-8 to 4e-7 from p, and p is fp32: give or take two.
TEST(SelectCases, TopPOfAPowerLawHasTheSizeOfTheTextbook) {
  Values row;
  for (int i = 0; i < 131072; ++i) row.push_back(static_cast<float>(-1.1 * std::log(i + 1.0)));
  const Batch batch({row, row, row});
  const std::vector<SelectParams> params = {{.top_p = 0.9f}, {.top_p = 0.99f}, {.top_p = 0.999f}};
  const std::vector<Cut> cuts = Selected({batch.view(), params}).cuts;
  EXPECT_NEAR(cuts[0].count, 14781, 2);
  EXPECT_NEAR(cuts[1].count, 103006, 2);
  EXPECT_NEAR(cuts[2].count, 127918, 2);
}

// Case 25 | k > V, k = V, k = 0, k = -1 | all kept; k = -2 | bad_param
TEST(SelectCases, TopKKeepsAllWhenOffOrAtLeastTheVocabulary) {
  const Values row = {1, 2, 3};
  for (const int32_t k : {4, 3, 0, -1}) EXPECT_EQ(Kept(row, {.top_k = k}), Range(0, 3)) << k;
  const Batch batch({row});
  const SelectParams params{.top_k = -2};
  EXPECT_EQ(Selected({batch.view(), {&params, 1}}).cuts[0].status, RowStatus::kBadParam);
}

// Case 26 | T = 0 with p = .1 | greedy; T = 1e-6, .005 | as T = .01; T = NaN, -1 | bad_param
TEST(SelectCases, TemperatureIsGreedyAtZeroAndRaisedBelowAHundredth) {
  const Batch batch({{1, 1.005f, 0.99f, 0.7f}});
  auto selected = [&batch](float temperature, float top_p) {
    const SelectParams params{.temperature = temperature, .top_p = top_p};
    return Selected({batch.view(), {&params, 1}});
  };
  EXPECT_EQ(selected(0.0f, 0.1f).cuts[0].count, 1);
  EXPECT_EQ(selected(0.0f, 1.0f).cuts[0].count, 1);
  const Selection lowest = selected(0.01f, 0.9f);
  EXPECT_GT(lowest.cuts[0].count, 1);
  for (const float temperature : {1e-6f, 0.005f}) {
    EXPECT_TRUE(SameSequence(selected(temperature, 0.9f).cuts, lowest.cuts));
    EXPECT_TRUE(SameSequence(selected(temperature, 0.9f).masses, lowest.masses));
  }
  for (const float temperature : {std::nanf(""), -1.0f, kInf}) {
    EXPECT_EQ(selected(temperature, 0.9f).cuts[0].status, RowStatus::kBadParam) << temperature;
  }
}

// Case 28 | row stride V + 64, garbage behind each row | as without
TEST(SelectCases, PaddingIsNeverRead) {
  const Values row = Logs({.1, .4, .3, .2});
  const Batch padded({row, row}, DType::kF32, 64);  // of 1e30 and NaN
  EXPECT_EQ(Kept(padded, {{.top_p = 0.6f}}), std::vector<Ids>(2, Ids({1, 2})));
}

// Case 32 | [.5, .3, .15, .05], k = 3, p = .9 | {0, 1, 2}, for .5 + .3 < .9 * .95
TEST(SelectCases, TopKWithTopPKeepsThreeOfFour) {
  EXPECT_EQ(Kept(Logs({.5, .3, .15, .05}), {.top_k = 3, .top_p = 0.9f}), Ids({0, 1, 2}));
}

// Case 40 | V = 2^23, the largest value at id 8388606 | that id, exactly
TEST(SelectCases, TheLastIdsOfTheLargestVocabularyAreExact) {
  Values row(size_t{1} << 23, -kInf);
  row[8388605] = row[8388607] = 1;
  row[8388606] = 2;
  const Batch batch({row}, DType::kBf16);
  const SelectParams greedy{.temperature = 0.0f};
  EXPECT_EQ(Sampled({batch.view(), {&greedy, 1}, std::vector<NoiseKey>(1)})[0].id, 8388606);
  EXPECT_EQ(Kept(batch, {{.top_k = 2}})[0], Ids({8388605, 8388606}));
}

// Case 41 | typical .55 of [.4, .3, .2, .1], entropy 1.27985 | {0, 1, 2}: nearest is 1, then 2, 0
TEST(SelectCases, TypicalKeepsTheTokensNearestTheMeanSurprise) {
  const Values row = Logs({.4, .3, .2, .1});
  EXPECT_EQ(Kept(row, {.typical_p = 0.55f}), Ids({0, 1, 2}));
  EXPECT_EQ(Kept(row, {.typical_p = 0.45f}), Ids({1, 2}));
  EXPECT_EQ(Kept(row, {.typical_p = 0.25f}), Ids({1}));
}

// Case 43 | XTC with probability 1, threshold .15, of [.4, .3, .2, .1] | {2, 3}
TEST(SelectCases, XtcDropsAllButTheLastTokenAboveItsThreshold) {
  const Values row = Logs({.4, .3, .2, .1});
  EXPECT_EQ(Kept(row, {.xtc_probability = 1.0f, .xtc_threshold = 0.15f}), Ids({2, 3}));
  EXPECT_EQ(Kept(row, {.xtc_probability = 1.0f, .xtc_threshold = 0.35f}), Range(0, 4));
}

Ids TopkOf(const Values& scores, int32_t k, const Ids& lengths, int32_t next_n = 1) {
  const Batch batch(std::vector<Values>(static_cast<size_t>(next_n), scores));
  TopkInput input{.scores = batch.view(), .k = k, .lengths = lengths, .next_n = next_n};
  const Workspace workspace(TopkWorkspaceBytes(input, {Backend::kRef}));
  Ids indices(static_cast<size_t>(next_n * k));
  std::vector<RowStatus> statuses(static_cast<size_t>(next_n));
  Topk(input, indices, {}, statuses, {Backend::kRef, {}, workspace.span()});
  return indices;
}

// Case 47 | length 10, next_n 2, k 12 | row 0: 0 .. 8, then -1; row 1: 0 .. 9, then -1
TEST(SelectCases, ScoresOfSpeculativeRowsEndAtTheirOwnLength) {
  EXPECT_EQ(TopkOf(Values(20, 1.0f), 12, {10}, 2),
            Ids({0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1}));
}

// Case 49 | k = 2048, 7000 times 1 and then 100 times 2 | the hundred, and ids 0 .. 1947
TEST(SelectCases, ScoresBehindALongTieAreNotLost) {
  Values scores(7000, 1.0f);
  scores.resize(7100, 2.0f);
  Ids expected = Range(0, 1948);
  const Ids twos = Range(7000, 7100);
  expected.insert(expected.end(), twos.begin(), twos.end());
  EXPECT_TRUE(SameSequence(TopkOf(scores, 2048, {7100}), expected));
}

// Case 50 | k + 1 scores | all but the smallest
TEST(SelectCases, ScoresOneMoreThanKLoseTheSmallest) {
  Values scores;
  for (int i = 0; i < 513; ++i) scores.push_back(static_cast<float>(i * 77 % 513));
  Ids expected = Range(1, 513);  // 0 stands at index 0
  EXPECT_TRUE(SameSequence(TopkOf(scores, 512, {513}), expected));
  scores[0] = 600;
  scores[300] = -kInf;
  expected = Range(0, 513);
  expected.erase(expected.begin() + 300);
  EXPECT_TRUE(SameSequence(TopkOf(scores, 512, {513}), expected));
}

}  // namespace
}  // namespace sluice::test
