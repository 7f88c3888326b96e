// The tokens of a tree of drafts with rejection follow the target's law, however many siblings were
// tried and whatever they were drawn from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sluice/sampler.hpp"
#include "tests/support/batch.h"
#include "tests/support/chi_square.h"
#include "tests/support/random.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 200000 / kSlowdown;
constexpr size_t kVocab = 8;
constexpr size_t kSiblings = 5;  // the fifth takes its acceptance from another block of noise
constexpr double kP[kVocab] = {0.15, 0.1, 0.2, 0.05, 0.15, 0.1, 0.1, 0.15};
constexpr double kQ[kVocab] = {0.02, 0.4, 0.05, 0.2, 0.03, 0.15, 0.05, 0.1};
constexpr double kNext[kVocab] = {0.05, 0.15, 0.25, 0.15, 0.1, 0.05, 0.05, 0.2};

enum class Law { kCertain, kIndependent, kWithoutReplacement };

class DraftTreesLaw : public ::testing::TestWithParam<Law> {};

std::vector<float> Logits(const double (&probabilities)[kVocab]) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

int32_t DrawFrom(const std::vector<double>& law, Random& random) {
  double u = random.Uniform();
  for (size_t id = 0; id < kVocab; ++id) {
    u -= law[id];
    if (u < 0.0 && law[id] > 0.0) return static_cast<int32_t>(id);
  }
  return DrawFrom(law, random);  // u was in what rounding left over
}

// How often one of the siblings is accepted, of independent drafts.
double AcceptanceRate() {
  std::vector<double> p(kP, kP + kVocab);
  double rejected = 1.0;
  for (size_t n = 0; n < kSiblings; ++n) {
    double left = 0.0;
    for (size_t id = 0; id < kVocab; ++id) {
      p[id] = std::max(p[id] - kQ[id], 0.0);
      left += p[id];
    }
    rejected *= left;
    for (double& value : p) value /= left;
  }
  return 1.0 - rejected;
}

// Each step has five siblings at the root, and two behind each of them.
TEST_P(DraftTreesLaw, TokensOfEveryDepthFollowTheTarget) {
  Random random(19);
  Sampler sampler({.vocab = kVocab, .max_requests = 1});
  SamplingParams params{.seed = 5};
  params.draft_mode = DraftMode::kReject;
  std::vector<std::vector<float>> rows(1 + 3 * kSiblings, Logits(kNext));
  rows[0] = Logits(kP);
  const Batch batch(rows);
  std::vector<int32_t> parents(kSiblings, -1);
  for (int32_t i = 0; i < static_cast<int32_t>(kSiblings); ++i) {
    parents.push_back(i);
    parents.push_back(i);
  }
  std::vector<int32_t> drafts(parents.size());
  std::vector<float> q(parents.size() * kVocab);
  const RequestHandle handle = sampler.Add({.params = params, .max_new_tokens = 3 * kSteps});
  StepRequest request{.request = handle, .drafts = drafts, .parents = parents};
  const int64_t count = std::ssize(drafts);
  if (GetParam() != Law::kCertain) request.draft_probabilities = {q.data(), count, kVocab, kVocab};
  std::vector<TokenResult> tokens(rows.size());
  std::vector<int32_t> emitted(1), path(rows.size());
  std::vector<int64_t> first(kVocab), second(kVocab), third(kVocab);
  int64_t accepted = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> law(kQ, kQ + kVocab);
    for (size_t i = 0; i < drafts.size(); ++i) {
      const bool is_first = i == 0 || parents[i] != parents[i - 1];
      if (is_first || GetParam() != Law::kWithoutReplacement) law.assign(kQ, kQ + kVocab);
      drafts[i] = GetParam() == Law::kCertain ? static_cast<int32_t>((3 * i + 1) % kVocab)
                                              : DrawFrom(law, random);
      double rest = 0.0;
      for (size_t id = 0; id < kVocab; ++id) {
        q[i * kVocab + id] = static_cast<float>(law[id]);
        if (id == static_cast<size_t>(drafts[i])) continue;
        rest += law[id];
      }
      law[static_cast<size_t>(drafts[i])] = 0.0;
      for (double& value : law) value /= rest;
    }
    sampler.Step({batch.view(), {&request, 1}},
                 {.tokens = tokens, .emitted = emitted, .path = path});
    ++first[static_cast<size_t>(tokens[0].id)];
    accepted += emitted[0] > 1 ? 1 : 0;
    if (emitted[0] > 1) ++second[static_cast<size_t>(tokens[1].id)];
    if (emitted[0] > 2) ++third[static_cast<size_t>(tokens[2].id)];
  }
  const int degrees = static_cast<int>(kVocab) - 1;
  EXPECT_LT(ChiSquareOf(first, kP).statistic, ChiSquareLimit(degrees));
  EXPECT_LT(ChiSquareOf(second, kNext).statistic, ChiSquareLimit(degrees));
  EXPECT_LT(ChiSquareOf(third, kNext).statistic, ChiSquareLimit(degrees));
  // Five standard deviations. Of the certain drafts 1, 4, 7, 2, 5 the tokens' P.
  if (GetParam() == Law::kWithoutReplacement) return;
  const double rate =
      GetParam() == Law::kCertain ? kP[1] + kP[4] + kP[7] + kP[2] + kP[5] : AcceptanceRate();
  const double deviation = std::sqrt(rate * (1.0 - rate) * kSteps);
  EXPECT_NEAR(static_cast<double>(accepted), rate * kSteps, 5.0 * deviation);
}

std::string LawName(const ::testing::TestParamInfo<Law>& info) {
  constexpr const char* kNames[] = {"certain", "independent", "without_replacement"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, DraftTreesLaw,
                         ::testing::Values(Law::kCertain, Law::kIndependent,
                                           Law::kWithoutReplacement),
                         LawName);

}  // namespace
}  // namespace sluice::test
