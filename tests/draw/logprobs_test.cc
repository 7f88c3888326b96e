// Log-probabilities, ranks and lists, against the textbook in fp64.
#include "sluice/logprobs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kNanBits = 0x7fc00000u;  // of the one that is reported
constexpr LogprobMode kModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                                  LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits};

class ListLogprobs : public BackendTest {};

struct Report {
  std::vector<TokenResult> results;
  std::vector<int32_t> ids;
  std::vector<float> values;
};

Report Reported(const LogprobInput& input, std::vector<TokenResult> results, int64_t width,
                Backend backend) {
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  const size_t size = static_cast<size_t>(input.logits.rows * width);
  Report report{std::move(results), std::vector<int32_t>(size), std::vector<float>(size)};
  Logprobs(input, report.results, {static_cast<int32_t>(width), report.ids, report.values},
           {backend, {}, workspace.span()});
  return report;
}

bool IsProcessed(LogprobMode mode) {
  return mode == LogprobMode::kProcessedLogits || mode == LogprobMode::kProcessedLogprobs;
}

// What a mode says of one row: the tokens it lists, by the total order, and their values in fp64.
struct Textbook {
  std::vector<int32_t> ids;
  std::vector<double> values;  // of all tokens

  Textbook(const Batch& batch, int64_t r, const std::vector<int32_t>& kept,
           const SelectParams& params, LogprobMode mode) {
    const bool greedy = params.temperature == 0.0f;
    const double temperature = !IsProcessed(mode) || greedy
                                   ? 1.0
                                   : static_cast<double>(std::max(params.temperature, 0.01f));
    for (int32_t id = 0; id < batch.view().vocab; ++id) {
      const bool is_kept = std::binary_search(kept.begin(), kept.end(), id);
      if (IsProcessed(mode) && !greedy && !is_kept) continue;
      if (batch.Get(r, id) != kMasked) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return batch.Get(r, a) > batch.Get(r, b); });
    const double max = static_cast<double>(batch.Get(r, ids[0]));
    double mass = 0.0;
    for (const int32_t id : ids) {
      mass += std::exp((static_cast<double>(batch.Get(r, id)) - max) / temperature);
    }
    const bool logits = mode == LogprobMode::kRawLogits || mode == LogprobMode::kProcessedLogits;
    for (int64_t id = 0; id < batch.view().vocab; ++id) {
      const double x = static_cast<double>(batch.Get(r, id));
      values.push_back(logits ? x / temperature : (x - max) / temperature - std::log(mass));
    }
  }
};

// The mass is within 1.7e-7 by the weights and, by the rounding of their exponents, within 2^-23
// times the row's mean exponent, which is below 12; LOG2 is off by at most 3e-7 by its polynomial.
// Behind that the value is rounded to fp32 once.
void ExpectNear(float actual, double expected) {
  EXPECT_NEAR(static_cast<double>(actual), expected, 3e-6 + 1.2e-7 * std::abs(expected));
}

TEST_P(ListLogprobs, EqualTheTextbookInEveryMode) {
  Random random(1);
  for (const RowKind kind : kAllRowKinds) {
    for (int i = 0; i < 8; ++i) {
      const int64_t vocab = random.Between(1, 400);
      const Batch batch({MakeRow(kind, vocab, random)}, dtype());
      SelectParams params = RandomSelectParams(vocab, random);
      params.xtc_probability = 0.0f;  // it drops the maximum, see below
      params.typical_p = 1.0f;
      const NoiseKey key{random.Bits(), 0, 0};
      const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
      const auto results = Sampled(input, DrawMethod::kGumbel, backend());
      const std::vector<Cut> cuts = {results[0].cut};
      const auto kept = KeptIds(batch.view(), cuts, backend())[0];
      for (const LogprobMode mode : kModes) {
        const Textbook textbook(batch, 0, kept, params, mode);
        const int64_t width = random.Between(0, vocab + 1);
        const Report report =
            Reported({batch.view(), mode, {&params, 1}}, results, width, backend());
        const TokenResult& result = report.results[0];
        const size_t sampled = static_cast<size_t>(result.id);
        ExpectNear(result.logprob, textbook.values[sampled]);

        int32_t rank = 0;
        for (const int32_t id : textbook.ids) {
          rank += batch.Get(0, id) >= batch.Get(0, result.id) ? 1 : 0;
        }
        EXPECT_EQ(result.rank, rank);

        for (size_t n = 0; n < static_cast<size_t>(width); ++n) {
          if (n == 0) {
            EXPECT_EQ(report.ids[0], result.id);
            EXPECT_TRUE(SameBits(report.values[0], result.logprob));
          } else if (n - 1 < textbook.ids.size()) {
            const int32_t id = textbook.ids[n - 1];
            ASSERT_EQ(report.ids[n], id);
            ExpectNear(report.values[n], textbook.values[static_cast<size_t>(id)]);
          } else {
            EXPECT_EQ(report.ids[n], -1);
            EXPECT_EQ(report.values[n], kMasked);
          }
        }
        // Nothing but the logprob and the rank is written.
        TokenResult untouched = result;
        untouched.logprob = results[0].logprob;
        untouched.rank = results[0].rank;
        EXPECT_TRUE(SameBits(untouched, results[0]));
      }
    }
  }
}

TEST_P(ListLogprobs, ThePlainExample) {
  const Batch batch({{2.0f, 1.0f, 0.0f, -1.0f}}, dtype());
  const SelectParams params{.temperature = 0.5f, .top_k = 2};
  const Selection selection = Selected({batch.view(), {&params, 1}}, backend());
  std::vector<TokenResult> results(1);
  results[0].id = 0;
  results[0].cut = selection.cuts[0];
  const auto raw =
      Reported({batch.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, 3, backend());
  EXPECT_NEAR(raw.results[0].logprob, -0.44019, 1e-5);
  EXPECT_EQ(raw.results[0].rank, 1);
  EXPECT_EQ(raw.ids, (std::vector<int32_t>{0, 0, 1}));
  const auto processed = Reported({batch.view(), LogprobMode::kProcessedLogprobs, {&params, 1}},
                                  results, 4, backend());
  EXPECT_NEAR(processed.results[0].logprob, -0.12693, 1e-5);
  EXPECT_EQ(processed.results[0].rank, 1);
  EXPECT_EQ(processed.ids, (std::vector<int32_t>{0, 0, 1, -1}));
  const auto logits =
      Reported({batch.view(), LogprobMode::kProcessedLogits, {&params, 1}}, results, 4, backend());
  EXPECT_EQ(logits.values, (std::vector<float>{4.0f, 4.0f, 2.0f, kMasked}));
}

TEST_P(ListLogprobs, LogitsAreTheValuesThemselvesAndTheirQuotientsByT) {
  Random random(2);
  const Batch batch({MakeRow(RowKind::kNormal, 100, random)}, dtype());
  const SelectParams params{.temperature = 0.7f, .top_k = 40};
  const NoiseKey key{1, 2, 3};
  const auto results =
      Sampled({batch.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, backend());
  const auto raw =
      Reported({batch.view(), LogprobMode::kRawLogits, {&params, 1}}, results, 101, backend());
  for (size_t n = 0; n < 101; ++n) EXPECT_EQ(raw.values[n], batch.Get(0, raw.ids[n]));
  const auto processed =
      Reported({batch.view(), LogprobMode::kProcessedLogits, {&params, 1}}, results, 41, backend());
  for (size_t n = 0; n < 41; ++n) {
    EXPECT_EQ(processed.values[n], batch.Get(0, processed.ids[n]) / 0.7f);
  }
}

TEST_P(ListLogprobs, TiedTokensShareTheRankOfTheLast) {
  const Batch batch({{1.0f, 3.0f, 3.0f, 2.0f}}, dtype());
  const SelectParams params;
  for (const LogprobMode mode : kModes) {
    std::vector<TokenResult> results(1);
    results[0].cut = Selected({batch.view(), {&params, 1}}, backend()).cuts[0];
    const int32_t ranks[] = {4, 2, 2, 3};
    for (int32_t id = 0; id < 4; ++id) {
      results[0].id = id;
      const Report report = Reported({batch.view(), mode, {&params, 1}}, results, 5, backend());
      EXPECT_EQ(report.results[0].rank, ranks[id]);
      EXPECT_EQ(report.ids, (std::vector<int32_t>{id, 1, 2, 3, 0}));
    }
  }
}

TEST_P(ListLogprobs, AGreedyRowIsProcessedAsTheWholeRowAtTemperatureOne) {
  const Batch batch({{1.0f, kMasked, 2.0f, 0.0f}}, dtype());
  const SelectParams params{.temperature = 0.0f, .top_k = 1, .top_p = 0.1f};
  const auto results = Sampled({batch.view(), {&params, 1}, std::vector<NoiseKey>(1)},
                               DrawMethod::kGumbel, backend());
  ASSERT_EQ(results[0].id, 2);
  const auto processed = Reported({batch.view(), LogprobMode::kProcessedLogprobs, {&params, 1}},
                                  results, 5, backend());
  const auto raw =
      Reported({batch.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, 5, backend());
  EXPECT_EQ(processed.ids, (std::vector<int32_t>{2, 2, 0, 3, -1}));
  EXPECT_TRUE(SameSequence(processed.values, raw.values));
  EXPECT_EQ(processed.results[0].rank, 1);
  const auto logits =
      Reported({batch.view(), LogprobMode::kProcessedLogits, {&params, 1}}, results, 2, backend());
  EXPECT_EQ(logits.values, (std::vector<float>{2.0f, 2.0f}));
}

TEST_P(ListLogprobs, ADroppedMaximumStillMeasuresTheRest) {
  // XTC drops id 0; what is left are two tokens of equal weight.
  const Batch batch({{2.0f, 1.0f, 1.0f}}, dtype());
  const SelectParams params{.xtc_probability = 1.0f, .xtc_threshold = 0.5f};
  std::vector<TokenResult> results(1);
  results[0].id = 1;
  results[0].cut = {.upper = 1.0f, .lower = 1.0f, .ties_kept = 2, .count = 2};
  const auto report = Reported({batch.view(), LogprobMode::kProcessedLogprobs, {&params, 1}},
                               results, 4, backend());
  EXPECT_NEAR(report.results[0].logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(report.results[0].rank, 2);
  EXPECT_EQ(report.ids, (std::vector<int32_t>{1, 1, 2, -1}));
}

TEST_P(ListLogprobs, ARawNanOrInfinityGivesNanThroughout) {
  for (const float bad : {kNan, -kNan, std::numeric_limits<float>::infinity()}) {
    const Batch batch({{0.0f, 1.0f, bad, 0.5f}}, dtype());
    const SelectParams params;
    std::vector<TokenResult> results(1);  // the adjustments masked the bad token
    results[0].id = 1;
    results[0].cut = {.lower = 0.0f, .ties_kept = 1, .count = 3};
    const auto report =
        Reported({batch.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, 3, backend());
    EXPECT_EQ(semantics::BitsOf(report.results[0].logprob), kNanBits);
    EXPECT_EQ(report.results[0].status, RowStatus::kOk);
    for (const float value : report.values) EXPECT_EQ(semantics::BitsOf(value), kNanBits);
    const auto logits =
        Reported({batch.view(), LogprobMode::kRawLogits, {&params, 1}}, results, 1, backend());
    EXPECT_EQ(logits.results[0].logprob, 1.0f);
  }
}

TEST_P(ListLogprobs, ASampledTokenThatTheModelMaskedIsLast) {
  // A forced token, say: its raw value is -inf, its adjusted one is not.
  const Batch batch({{0.0f, kMasked, 1.0f}}, dtype());
  const SelectParams params;
  std::vector<TokenResult> results(1);
  results[0].id = 1;
  results[0].cut = {.lower = 0.0f, .ties_kept = 1, .count = 1};
  const auto report =
      Reported({batch.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, 4, backend());
  EXPECT_EQ(report.results[0].logprob, kMasked);
  EXPECT_EQ(report.results[0].rank, 3);
  EXPECT_EQ(report.ids, (std::vector<int32_t>{1, 2, 0, -1}));
  EXPECT_EQ(report.values[3], kMasked);
}

TEST_P(ListLogprobs, ARowWithAStatusIsBlankAndItsNeighboursAreNot) {
  const Batch batch({{1.0f, 0.0f}, {kNan, 0.0f}, {0.0f, 1.0f}}, dtype());
  const SelectParams params;
  auto results = Sampled({batch.view(), {&params, 1}, std::vector<NoiseKey>(1)},
                         DrawMethod::kGumbel, backend());
  ASSERT_EQ(results[1].status, RowStatus::kNanInput);
  results[1].rank = 77;
  for (const LogprobMode mode : kModes) {
    const auto report = Reported({batch.view(), mode, {&params, 1}}, results, 3, backend());
    EXPECT_TRUE(std::isnan(report.results[1].logprob));
    EXPECT_EQ(report.results[1].rank, 0);
    for (size_t n = 3; n < 6; ++n) {
      EXPECT_EQ(report.ids[n], -1);
      EXPECT_TRUE(std::isnan(report.values[n]));
    }
    for (const int64_t r : {0, 2}) {
      const auto alone = Reported({batch.row(r), mode, {&params, 1}},
                                  {results[static_cast<size_t>(r)]}, 3, backend());
      const size_t first = static_cast<size_t>(3 * r);
      EXPECT_TRUE(SameSequence(std::span(report.ids).subspan(first, 3), alone.ids));
      EXPECT_TRUE(SameSequence(std::span(report.values).subspan(first, 3), alone.values));
    }
  }
}

TEST_P(ListLogprobs, AreTheSameInAnyRoundingModeOfTheCaller) {
  Random random(3);
  const Batch batch({MakeRow(RowKind::kNormal, 200, random)}, dtype());
  const SelectParams params{.temperature = 0.7f};
  std::vector<TokenResult> results(1);
  results[0].id = 0;
  results[0].cut = Selected({batch.view(), {&params, 1}}, backend()).cuts[0];
  for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kProcessedLogprobs}) {
    const LogprobInput input{batch.view(), mode, {&params, 1}};
    const Report expected = Reported(input, results, 201, backend());
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fesetround(rounding);
      const Report report = Reported(input, results, 201, backend());
      const int left = std::fegetround();
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(left, rounding);  // the caller's own mode is what it was
      EXPECT_TRUE(SameSequence(report.values, expected.values));
    }
  }
}

TEST_P(ListLogprobs, HostileRowsGiveNoTokenAboveZero) {
  for (const HostileRow& row : HostileRows()) {
    const Batch batch({row.values}, dtype());
    for (const SelectParams& params : ExtremeSelectParams()) {
      const NoiseKey key{5, 6, 7};
      const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
      const auto results = Sampled(input, DrawMethod::kCdf, backend());
      for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kProcessedLogprobs}) {
        const auto report = Reported({batch.view(), mode, {&params, 1}}, results,
                                     batch.view().vocab + 1, backend());
        if (results[0].status != RowStatus::kOk) continue;
        EXPECT_GE(report.results[0].rank, 1) << row.name;
        for (size_t n = 1; n < report.values.size(); ++n) {
          EXPECT_LE(report.values[n], 3e-6f) << row.name;
          if (n > 1) {
            EXPECT_LE(report.values[n], report.values[n - 1]) << row.name;
          }
        }
      }
    }
  }
}

SLUICE_FOR_EACH_BACKEND(ListLogprobs);

}  // namespace
}  // namespace sluice::test
