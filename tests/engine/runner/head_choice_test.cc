// What the head `auto` is: planes where the head is large enough to gain by them and the requests
// do not read it whole all the same.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/runner/head_stage.h"

namespace sluice::test {
namespace {

// Its elements are not looked at.
MatrixView Shape(int64_t vocab, int64_t dim, DType dtype = DType::kBf16) {
  return {nullptr, vocab, dim, dim, dtype, {}};
}

const MatrixView kLarge = Shape(151936, 896);

HeadChoice Chosen(const MatrixView& weight, const SamplingParams& params = {},
                  const GenerationReports& reports = {}, float logit_softcap = 0.0f) {
  return engine::ChosenHead(HeadChoice::kAuto, weight, params, logit_softcap, reports);
}

TEST(ChosenHead, IsDenseForHeadsBelow32Mebibytes) {
  EXPECT_EQ(Chosen(Shape(8192, 320)), HeadChoice::kDense);
  EXPECT_EQ(Chosen(Shape(16384, 1023)), HeadChoice::kDense);
  EXPECT_EQ(Chosen(Shape(16384, 1024)), HeadChoice::kDither4);
  EXPECT_EQ(Chosen(Shape(16384, 512)), HeadChoice::kDense);
  EXPECT_EQ(Chosen(Shape(16384, 512, DType::kF32)), HeadChoice::kDither4);
  EXPECT_EQ(Chosen(kLarge), HeadChoice::kDither4);
}

TEST(ChosenHead, IsWhatWasAskedForWhereSomethingWas) {
  for (const HeadChoice choice : {HeadChoice::kDense, HeadChoice::kDither4, HeadChoice::kStrict}) {
    for (const MatrixView& weight : {Shape(10, 10), kLarge}) {
      EXPECT_EQ(engine::ChosenHead(choice, weight, {.logprobs = 3}, 30.0f, {.masses = true}),
                choice);
    }
  }
}

struct Served {
  std::string what;
  HeadChoice expected;
  SamplingParams params = {};
  GenerationReports reports = {};
  float logit_softcap = 0.0f;
};

SamplingParams Penalised(SamplingParams params) {
  params.repetition_penalty = 1.1f;
  return params;
}

TEST(ChosenHead, IsDenseWhereRequestsAndTheirReportsReadAllLogits) {
  constexpr HeadChoice kPlanes = HeadChoice::kDither4, kDense = HeadChoice::kDense;
  const SamplingParams top_k{.top_k = 50, .top_p = 0.9f};
  const SamplingParams top_p{.top_p = 0.9f};
  SamplingParams cdf = top_p;
  cdf.draw_method = DrawMethod::kCdf;
  SamplingParams xtc = top_p;
  xtc.xtc_probability = 0.5f;
  SamplingParams logprobs = top_k;
  logprobs.logprobs = 0;
  SamplingParams until_min = top_k;  // changed for its first tokens alone
  until_min.min_tokens = 5;
  until_min.stop_token_ids = {3};
  const std::vector<Served> all = {
      {"top-k", kPlanes, top_k},
      {"top-k, all sets", kPlanes, top_k, {.cuts = true, .kept = true, .masses = true}},
      {"top-k, logits", kPlanes, top_k, {.logits = true}},
      {"the token of top-p", kPlanes, top_p},
      {"the token of top-p, logits", kPlanes, top_p, {.logits = true}},
      {"top-p, its Cut", kDense, top_p, {.cuts = true}},
      {"top-p, its kept set", kDense, top_p, {.kept = true}},
      {"top-p, its masses", kDense, top_p, {.masses = true}},
      {"top-p, cdf", kDense, cdf},
      {"top-p, XTC", kDense, xtc},
      {"typical", kDense, {.typical_p = 0.9f}},
      {"top-n-sigma", kDense, {.top_n_sigma = 1.0f}},
      {"log-probabilities", kDense, logprobs},
      {"soft-cap", kDense, top_k, {}, 30.0f},
      {"penalties", kPlanes, Penalised(top_k)},
      {"penalties, the token of top-p", kPlanes, Penalised(top_p)},
      {"penalties, Cuts", kPlanes, Penalised(top_k), {.cuts = true}},
      {"penalties, kept sets", kDense, Penalised(top_k), {.kept = true}},
      {"penalties, masses", kDense, Penalised(top_k), {.masses = true}},
      {"min-tokens, kept sets", kPlanes, until_min, {.kept = true}},
  };
  for (const Served& one : all) {
    EXPECT_EQ(Chosen(kLarge, one.params, one.reports, one.logit_softcap), one.expected) << one.what;
  }
}

}  // namespace
}  // namespace sluice::test
