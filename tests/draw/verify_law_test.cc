// Rejection sampling follows the target's law, whatever the drafts were drawn from.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sluice/verify.hpp"
#include "tests/support/batch.h"
#include "tests/support/chi_square.h"
#include "tests/support/random.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr int kRuns = 200000;
constexpr double kP[] = {0.5, 0.3, 0.2};
constexpr double kQ[] = {0.2, 0.5, 0.3};
constexpr double kBonus[] = {0.1, 0.6, 0.3};

std::vector<float> Logits(const double (&probabilities)[3]) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

enum class Source { kCertain, kGiven, kSluice };

class VerifyLaw : public ::testing::TestWithParam<std::tuple<Source, DrawMethod>> {};

// kRuns requests with one draft each; the first emitted token is counted, and the bonus token of
// those whose draft was accepted.
TEST_P(VerifyLaw, FirstAndBonusTokenFollowTheTarget) {
  const auto [source, method] = GetParam();
  // One pair of rows serves all requests: a stride of 0 is not allowed, so chunks of 1000.
  constexpr size_t kChunk = 1000;
  std::vector<std::vector<float>> target_rows;
  std::vector<std::vector<float>> draft_rows;
  std::vector<std::vector<float>> given_rows;
  std::vector<int64_t> first_row = {0};
  for (size_t i = 0; i < kChunk; ++i) {
    target_rows.insert(target_rows.end(), {Logits(kP), Logits(kBonus)});
    draft_rows.insert(draft_rows.end(), 2, Logits(kQ));
    given_rows.insert(given_rows.end(), 2, {0.2f, 0.5f, 0.3f});
    first_row.push_back(first_row.back() + 2);
  }
  const Batch target(target_rows);
  const Batch draft_model(draft_rows);
  const Batch given(given_rows);
  const LogitsView q = given.view();
  const SelectParams params;
  const Workspace workspace(VerifyWorkspaceBytes(target.view(), {}));
  const Execution execution{Backend::kAuto, {}, workspace.span()};

  std::vector<NoiseKey> keys(2 * kChunk);
  std::vector<int32_t> ids(2 * kChunk);
  std::vector<Cut> cuts(2 * kChunk);
  std::vector<TokenResult> draft_results(2 * kChunk);
  std::vector<TokenResult> results(2 * kChunk);
  std::vector<int32_t> emitted(kChunk);
  std::vector<int64_t> first(3);
  std::vector<int64_t> bonus(3);
  int64_t accepted = 0;
  Random random(17);
  for (int run = 0; run < kRuns; run += static_cast<int>(kChunk)) {
    for (size_t i = 0; i < kChunk; ++i) {
      const uint64_t seed = static_cast<uint64_t>(run) + i;
      keys[2 * i] = {seed, 10, 0};
      keys[2 * i + 1] = {seed, 11, 0};
      const double u = random.Uniform();
      ids[2 * i] = source == Source::kCertain ? 1 : u < kQ[0] ? 0 : u < kQ[0] + kQ[1] ? 1 : 2;
    }
    Drafts drafts{.first_row = first_row, .ids = ids};
    if (source == Source::kGiven) {
      drafts.probabilities = {q.data, q.rows, q.vocab, q.stride, q.dtype, q.device};
    } else if (source == Source::kSluice) {
      // Drawn with the very keys of the target: acceptance and recovery have streams of their own.
      drafts.model = {draft_model.view(), {&params, 1}, keys};
      Sample(drafts.model, method, draft_results, execution);
      for (size_t i = 0; i < draft_results.size(); ++i) {
        ids[i] = draft_results[i].id;
        cuts[i] = draft_results[i].cut;
      }
      drafts.model_cuts = cuts;
    }
    Verify({target.view(), {&params, 1}, keys}, drafts, DraftMode::kReject, method, results,
           emitted, execution);
    for (size_t i = 0; i < kChunk; ++i) {
      ++first[static_cast<size_t>(results[2 * i].id)];
      if (emitted[i] < 2) continue;
      ++accepted;
      ++bonus[static_cast<size_t>(results[2 * i + 1].id)];
    }
  }
  EXPECT_LT(ChiSquareOf(first, kP).statistic, ChiSquareLimit(2));
  EXPECT_LT(ChiSquareOf(bonus, kBonus).statistic, ChiSquareLimit(2));
  // The sum of min(p, q), or p of the one draft; five standard deviations of it.
  const double rate = source == Source::kCertain ? 0.3 : 0.7;
  const double deviation = std::sqrt(rate * (1.0 - rate) * kRuns);
  EXPECT_NEAR(static_cast<double>(accepted), rate * kRuns, 5.0 * deviation);
}

std::string LawName(const ::testing::TestParamInfo<std::tuple<Source, DrawMethod>>& info) {
  constexpr const char* kSources[] = {"certain", "given", "sluice"};
  const bool gumbel = std::get<1>(info.param) == DrawMethod::kGumbel;
  return std::string(kSources[static_cast<size_t>(std::get<0>(info.param))]) +
         (gumbel ? "_gumbel" : "_cdf");
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifyLaw,
    ::testing::Combine(::testing::Values(Source::kCertain, Source::kGiven, Source::kSluice),
                       ::testing::Values(DrawMethod::kGumbel, DrawMethod::kCdf)),
    LawName);

}  // namespace
}  // namespace sluice::test
