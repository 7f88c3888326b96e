// Known answers: draws, log-probabilities and drafts, case by case. The numbers are names that
// stay; the gaps are cases that other tests hold.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "semantics/draw/draft.h"
#include "tests/support/batch.h"
#include "tests/support/random.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using Values = std::vector<float>;

void FillLogprobs(const Batch& batch, LogprobMode mode, const SelectParams& params,
                  std::vector<TokenResult>& results) {
  const Workspace workspace(SelectWorkspaceBytes(batch.view(), {Backend::kRef}));
  Logprobs({batch.view(), mode, {&params, 1}}, results, {}, {Backend::kRef, {}, workspace.span()});
}

// Case 5 | L = [-inf, 2, -inf], any parameters, 1000 seeds | token 1, log-probability 0
TEST(DrawCases, OnlyFiniteTokenIsAlwaysDrawnWithCertainty) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Batch batch({{-kInf, 2, -kInf}});
  const SelectParams all[] = {{},
                              {.temperature = 0.0f},
                              {.temperature = 0.01f},
                              {.temperature = 2.0f, .top_k = 3},
                              {.top_k = 1, .top_p = 1e-12f},
                              {.top_p = 0.5f},
                              {.min_p = 1.0f, .typical_p = 0.1f, .xtc_probability = 1.0f}};
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const SelectParams& params = all[seed % std::size(all)];
    const NoiseKey key{seed, static_cast<uint32_t>(seed * 7), 0};
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
      std::vector<TokenResult> results = Sampled(input, method);
      EXPECT_EQ(results[0].id, 1);
      for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kProcessedLogprobs}) {
        FillLogprobs(batch, mode, params, results);
        EXPECT_EQ(results[0].logprob, 0.0f);
        EXPECT_EQ(results[0].rank, 1);
      }
    }
  }
}

// Case 29 | L = [1, .5, 0, -.5], u = [.3, .7, .9, .05] | L - ln(-ln u) = [.8144, 1.5309, 2.2504,
// -1.5972], so token 2; T = .5: [1.8144, 2.0309, 2.2504, -2.0972], token 2
//
// Noise is to base 2 and of the upper tail 1 - u; both change the scores by constants only. Held
// here: the variate of N is what the law says for u = 1 - N / 2^48.
TEST(DrawCases, GumbelNoiseIsTheTextbookOneToBaseTwo) {
  const double u[] = {.3, .7, .9, .05};
  const double logits[] = {1, .5, 0, -.5};
  const double at_one[] = {.8144, 1.5309, 2.2504, -1.5972};
  const double at_half[] = {1.8144, 2.0309, 2.2504, -2.0972};
  const double ln2 = std::log(2.0);
  for (size_t i = 0; i < 4; ++i) {
    const auto n = static_cast<uint64_t>((1.0 - u[i]) * 0x1p48);
    const double g = ln2 * (static_cast<double>(semantics::Gumbel(n)) - std::log2(ln2));
    EXPECT_NEAR(logits[i] + g, at_one[i], 6e-5);
    EXPECT_NEAR(logits[i] / 0.5 + g, at_half[i], 6e-5);
  }
}

// Case 35 | L = [2, 1, 0, -1], T = .5, k = 2, token 0 | raw -.44019, processed -.12693, rank 1;
// token 1 | raw 1 less, processed 1 / T less, rank 2
TEST(DrawCases, RawLogprobsIgnoreWhatProcessedOnesSee) {
  const Batch batch({{2, 1, 0, -1}});
  const SelectParams params{.temperature = 0.5f, .top_k = 2};
  std::vector<TokenResult> results(1);
  results[0].cut = Selected({batch.view(), {&params, 1}}).cuts[0];
  for (const int32_t id : {0, 1}) {
    results[0].id = id;
    FillLogprobs(batch, LogprobMode::kRawLogprobs, params, results);
    EXPECT_NEAR(results[0].logprob, -0.44019 - id, 1e-5);
    EXPECT_EQ(results[0].rank, 1 + id);
    FillLogprobs(batch, LogprobMode::kProcessedLogprobs, params, results);
    EXPECT_NEAR(results[0].logprob, -0.12693 - 2 * id, 1e-5);
    EXPECT_EQ(results[0].rank, 1 + id);
  }
}

uint32_t Word(double u) { return static_cast<uint32_t>(u * 0x1p32); }

// Case 37 | p = [.5, .3, .2], q = [.2, .5, .3], draft 1, u = .6 | accept; u = .61 | reject, and
// token 0 is all that is left of p - q
TEST(DrawCases, DraftIsAcceptedUpToTheRatioOfItsProbabilities) {
  const Values p = {.5f, .3f, .2f};
  const Values q = {.2f, .5f, .3f};
  const uint64_t p1 = semantics::Fixed40(p[1]);
  const uint64_t q1 = semantics::Fixed40(q[1]);
  EXPECT_TRUE(semantics::AcceptsDraft(p1, q1, Word(.6) - 1));
  EXPECT_FALSE(semantics::AcceptsDraft(p1, q1, Word(.61) - 1));
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    EXPECT_EQ(semantics::DrawRecovered(3, semantics::GivenProbabilities(p.data()),
                                       semantics::GivenProbabilities(q.data()), {seed, 0, 0}),
              0);
  }
}

// Case 38 | q of the draft is 0 | reject; a draft without probabilities | accept iff p >= u
TEST(DrawCases, DraftWithoutProbabilitiesIsAcceptedWithTheTargets) {
  for (const uint32_t u : {0u, 1u, 0xffffffffu}) {
    EXPECT_FALSE(semantics::AcceptsDraft(semantics::kFullWeight, 0, u));
    EXPECT_FALSE(semantics::AcceptsDraft(0, 0, u));
  }
  // (U + 1) / 2^32 is u: exactly p is accepted, the next word is not.
  const uint64_t p = semantics::Fixed40(0.25f);
  EXPECT_TRUE(semantics::AcceptsDraft(p, semantics::kFullWeight, Word(.25) - 1));
  EXPECT_FALSE(semantics::AcceptsDraft(p, semantics::kFullWeight, Word(.25)));
  EXPECT_TRUE(semantics::AcceptsDraft(semantics::kFullWeight, semantics::kFullWeight, 0xffffffffu));
}

}  // namespace
}  // namespace sluice::test
