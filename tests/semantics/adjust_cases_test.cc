// Known answers: what the whole step must give for requests that adjust their logits, case by case.
// The numbers are names that stay; the gaps are cases that other tests hold.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sluice/sluice.hpp"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

using Values = std::vector<float>;
using Ids = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Stepped {
  TokenResult token;
  Values adjusted;
};

// One step of one request that has already generated `output`.
Stepped StepOnce(const SamplingParams& params, const Ids& prompt, const Ids& output,
                 const Values& logits) {
  Sampler sampler({.vocab = static_cast<int64_t>(logits.size()), .max_requests = 1});
  const RequestHandle handle = sampler.Add({.params = params, .prompt = prompt});
  sampler.Accept(handle, output);
  const Batch batch({logits});
  const StepRequest request{.request = handle};
  Stepped stepped{{}, Values(logits.size())};
  int32_t emitted = 0;
  const int64_t vocab = batch.view().vocab;
  sampler.Step({batch.view(), {&request, 1}},
               {.tokens = {&stepped.token, 1},
                .emitted = {&emitted, 1},
                .adjusted = {stepped.adjusted.data(), 1, vocab, vocab, DType::kF32, {}}});
  return stepped;
}

// Case 7 | a masked token that was seen, under every penalty | stays -inf, no NaN
TEST(AdjustCases, PenaltiesLeaveAMaskedTokenMasked) {
  for (const float repetition : {0.5f, 1.0f, 2.0f}) {
    for (const float penalty : {-2.0f, 0.0f, 2.0f}) {
      const SamplingParams params{.repetition_penalty = repetition,
                                  .frequency_penalty = penalty,
                                  .presence_penalty = penalty,
                                  .logit_bias = {{1, 100.0f}}};
      const Stepped stepped = StepOnce(params, {1}, {1, 1}, {1, -kInf, 2});
      EXPECT_TRUE(SameSequence(stepped.adjusted, Values{1, -kInf, 2}));
      EXPECT_EQ(stepped.token.status, RowStatus::kOk);
    }
  }
}

// Case 8 | repetition .5, L = [2, -1], both seen | [4, -.5]
TEST(AdjustCases, RepetitionBelowOneFavoursWhatWasSeen) {
  EXPECT_TRUE(SameSequence(StepOnce({.repetition_penalty = 0.5f}, {0}, {1}, {2, -1}).adjusted,
                           Values{4, -0.5f}));
}

// Case 10 | min_tokens 2, stop token 3, after one and after two tokens | -inf, then untouched
TEST(AdjustCases, StopTokenIsMaskedUntilMinTokens) {
  const SamplingParams params{.min_tokens = 2, .stop_token_ids = {3}};
  EXPECT_TRUE(
      SameSequence(StepOnce(params, {0}, {1}, {1, 2, 3, 4}).adjusted, Values{1, 2, 3, -kInf}));
  EXPECT_TRUE(
      SameSequence(StepOnce(params, {0}, {1, 1}, {1, 2, 3, 4}).adjusted, Values{1, 2, 3, 4}));
}

// Case 11 | bad words [5 6], [7]; output ends with 5 | 6 and 7; the prompt ends with 5 | 7
TEST(AdjustCases, BadWordsAreMatchedAgainstTheOutputOnly) {
  const SamplingParams params{.bad_words = {{5, 6}, {7}}};
  const Values logits(8, 1.0f);
  EXPECT_TRUE(SameSequence(StepOnce(params, {0}, {1, 5}, logits).adjusted,
                           Values{1, 1, 1, 1, 1, 1, -kInf, -kInf}));
  EXPECT_TRUE(SameSequence(StepOnce(params, {1, 5}, {}, logits).adjusted,
                           Values{1, 1, 1, 1, 1, 1, 1, -kInf}));
}

// Case 13 | allowed {1, 4}, bad words [1], [4] | empty_support
TEST(AdjustCases, MasksThatLeaveNothingGiveAStatus) {
  const Stepped stepped =
      StepOnce({.allowed_token_ids = Ids{1, 4}, .bad_words = {{1}, {4}}}, {0}, {}, Values(6, 1.0f));
  EXPECT_EQ(stepped.token.status, RowStatus::kEmptySupport);
  EXPECT_EQ(stepped.token.id, -1);
}

// Case 52 | a grammar mask on rows 1 and 3 of 4 | rows 0 and 2 bit for bit as without
TEST(AdjustCases, GrammarMaskOfOneRequestTouchesNoOther) {
  const Batch batch({{1, 2, 3, 0.5f}, {1, 2, 3, 0.5f}, {3, 1, 2, 0}, {3, 1, 2, 0}});
  const Ids mask = {0b1001};
  auto run = [&](bool masked, Values& adjusted) {
    Sampler sampler({.vocab = 4, .max_requests = 4});
    std::vector<StepRequest> requests;
    for (size_t r = 0; r < 4; ++r) {
      requests.push_back({.request = sampler.Add({.params = {.seed = r}})});
      if (masked && r % 2 == 1) requests.back().bitmask = mask;
    }
    std::vector<TokenResult> tokens(4);
    Ids emitted(4);
    adjusted.assign(16, 0.0f);
    sampler.Step({batch.view(), requests},
                 {.tokens = tokens,
                  .emitted = emitted,
                  .adjusted = {adjusted.data(), 4, 4, 4, DType::kF32, {}}});
    return tokens;
  };
  Values free_values;
  Values masked_values;
  const std::vector<TokenResult> free = run(false, free_values);
  const std::vector<TokenResult> masked = run(true, masked_values);
  Values expected = free_values;
  for (const size_t row : {1u, 3u}) expected[row * 4 + 1] = expected[row * 4 + 2] = -kInf;
  EXPECT_TRUE(SameSequence(masked_values, expected));
  for (const size_t row : {0u, 2u}) EXPECT_TRUE(SameBits(masked[row], free[row])) << row;
  for (const size_t row : {1u, 3u}) EXPECT_TRUE(masked[row].id == 0 || masked[row].id == 3) << row;
}

}  // namespace
}  // namespace sluice::test
