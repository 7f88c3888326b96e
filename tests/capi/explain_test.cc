// sluice_explain is sluice::Explain, and says what is wrong with its arguments.
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "tests/capi/as_c.h"
#include "tests/sampler/stepping.h"
#include "tests/support/batch.h"

namespace sluice::test {
namespace {

// Equal, and a NaN equals a NaN.
template <typename T>
bool Same(T a, T b) {
  return a == b || (a != a && b != b);
}

std::string SentenceOf(const sluice_explanation& explanation) {
  size_t length = 0;
  ExpectOk(sluice_explanation_sentence(&explanation, nullptr, 0, &length));
  std::string text(length + 1, '#');
  ExpectOk(sluice_explanation_sentence(&explanation, text.data(), text.size(), &length));
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  return text;
}

void ExpectSame(const sluice_explanation& c, const Explanation& cpp) {
  EXPECT_EQ(c.id, cpp.id);
  EXPECT_EQ(c.status, static_cast<uint8_t>(cpp.status));
  EXPECT_TRUE(Same(c.logit, cpp.logit) && Same(c.adjusted, cpp.adjusted));
  EXPECT_EQ(c.rank, cpp.rank);
  EXPECT_TRUE(Same(c.probability, cpp.probability));
  EXPECT_TRUE(Same(c.kept_probability, cpp.kept_probability));
  EXPECT_EQ(c.is_kept, cpp.is_kept);
  EXPECT_EQ(c.is_drawn, cpp.is_drawn);
  EXPECT_EQ(c.has_dropped_by, cpp.dropped_by.has_value());
  EXPECT_EQ(c.dropped_by, static_cast<uint8_t>(cpp.dropped_by.value_or(Stage::kLogits)));
  EXPECT_EQ(c.drawn_id, cpp.drawn_id);
  EXPECT_EQ(c.draw_method, static_cast<uint8_t>(cpp.draw_method));
  EXPECT_EQ(c.xtc_coin_fell, cpp.xtc_coin_fell);
  EXPECT_EQ(std::bit_cast<Cut>(c.cut), cpp.cut);
  for (size_t s = 0; s < kStages; ++s) {
    const auto stage = std::bit_cast<StageReport>(c.stages[s]);
    const StageReport& expected = cpp.stages[s];
    EXPECT_EQ(stage.is_on, expected.is_on);
    EXPECT_EQ(stage.is_left, expected.is_left);
    EXPECT_EQ(stage.tokens_left, expected.tokens_left);
    EXPECT_TRUE(Same(stage.mass_left, expected.mass_left));
    EXPECT_TRUE(Same(stage.before, expected.before) && Same(stage.after, expected.after));
    EXPECT_EQ(stage.comparison, expected.comparison);
    EXPECT_TRUE(Same(stage.quantity, expected.quantity) && Same(stage.limit, expected.limit));
    EXPECT_EQ(stage.is_exempt, expected.is_exempt);
  }
  EXPECT_EQ(SentenceOf(c), Sentence(cpp));
}

TEST(CExplain, GivesWhatExplainGives) {
  Random random(6);
  for (int round = 0; round < 100; ++round) {
    const int64_t vocab = random.Between(4, 70);
    const LiteralRequest request = RandomLiteralRequest(vocab, random);
    std::vector<int32_t> tokens = request.prompt;
    for (int64_t n = random.Below(5); n > 0; --n) {
      tokens.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
    const std::vector<int32_t> bitmask = RandomBitmask(vocab, random.Coin() ? 1 : 0, random);
    const Batch batch({MakeRow(kAllRowKinds[random.Below(8)], vocab, random)},
                      kAllDTypes[random.Below(3)]);
    std::vector<int32_t> ids(static_cast<size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    const ExplainInput cpp{.logits = batch.view(),
                           .params = request.params,
                           .key = request.Key(),
                           .tokens = tokens,
                           .prompt_length = request.prompt.size(),
                           .bitmask = bitmask,
                           .forced = random.Coin(0.1) ? 2 : -1};
    const CSamplingParams params(cpp.params);
    sluice_explain_input c;
    sluice_explain_input_init(&c);
    c.logits = AsC<sluice_logits_view>(cpp.logits);
    c.params = params.params;
    c.key = AsC<sluice_noise_key>(cpp.key);
    c.tokens = tokens.data();
    c.token_count = tokens.size();
    c.prompt_length = cpp.prompt_length;
    c.bitmask = bitmask.data();
    c.word_count = bitmask.size();
    c.forced = cpp.forced;
    std::vector<sluice_explanation> explanations(ids.size());
    ExpectOk(sluice_explain(&c, ids.data(), ids.size(), explanations.data(), ids.size()));
    const std::vector<Explanation> expected = Explain(cpp, ids);
    for (size_t i = 0; i < ids.size(); ++i) ExpectSame(explanations[i], expected[i]);
    if (HasFailure()) return;
  }
}

struct Call {
  std::vector<float> values = {0, 1, 2, 3};
  int32_t tokens[2] = {0, 1};
  sluice_explain_input input;
  int32_t id = 1;
  sluice_explanation explanation = {};

  Call() {
    sluice_explain_input_init(&input);
    input.logits = {values.data(), 1, 4, 4, SLUICE_F32, {SLUICE_CPU, 0}};
    input.tokens = tokens;
    input.token_count = 2;
  }
  sluice_status Run() { return sluice_explain(&input, &id, 1, &explanation, 1); }
};

TEST(CExplain, ProcessorsRunAndTheirFailureIsTheCalls) {
  Call call;
  int failure = 0;
  const sluice_logits_processor processor{
      &failure,
      [](void* context, const int32_t*, size_t, size_t, float* logits, size_t) {
        logits[1] = -INFINITY;
        return *static_cast<int*>(context);
      },
      false};
  call.input.processors = &processor;
  call.input.processor_count = 1;
  ExpectOk(call.Run());
  EXPECT_EQ(call.explanation.dropped_by, SLUICE_STAGE_PROCESSORS);
  failure = 3;
  EXPECT_EQ(call.Run(), SLUICE_CALLBACK_FAILED);
}

TEST(CExplain, RefusesWhatIsWrongAndWritesNothing) {
  struct Case {
    std::function<void(Call&)> spoil;
    std::string message;
    sluice_status status = SLUICE_INVALID_VALUE;
  };
  const std::vector<Case> cases = {
      {[](Call& c) { c.id = 4; }, "id = 4 is not allowed: [0, 3]"},
      {[](Call& c) { c.input.tokens = nullptr; },
       "tokens = null is not allowed: a pointer to the elements"},
      {[](Call& c) { c.tokens[1] = 4; }, "tokens = 4 is not allowed: [0, 3]"},
      {[](Call& c) { c.input.prompt_length = 3; }, "prompt_length = 3 is not allowed: [0, 2]"},
      {[](Call& c) { c.input.word_count = 1; },
       "bitmask = null is not allowed: a pointer to the elements"},
      {[](Call& c) { c.input.processor_count = 1; },
       "processors = null is not allowed: a pointer to the elements"},
      {[](Call& c) { c.input.params.top_p = 2; }, "top_p = 2 is not allowed: (0, 1]"},
      {[](Call& c) { c.input.params.profile.ties = 2; }, "profile.ties = 2 is not allowed: [0, 1]"},
      {[](Call& c) { c.input.key.stream = 2; }, "key.stream = 2 is not allowed: [0, 1]"},
      {[](Call& c) { c.input.logits.dtype = 9; },
       "logits.dtype = 9 is not allowed: float32, bfloat16 or float16", SLUICE_INVALID_TYPE},
      {[](Call& c) { c.input.abi_version = 99; },
       "input.abi_version = 99 is not allowed: 1, that of the library; the struct's _init function "
       "stores the header's",
       SLUICE_UNAVAILABLE},
  };
  ExpectOk(Call().Run());
  for (const Case& bad : cases) {
    Call call;
    bad.spoil(call);
    call.explanation.id = 77;
    EXPECT_EQ(call.Run(), bad.status) << bad.message;
    EXPECT_EQ(sluice_last_error(), bad.message);
    EXPECT_EQ(call.explanation.id, 77);
  }
}

TEST(CExplain, NullPointersAreErrors) {
  Call call;
  size_t length = 0;
  char text[8] = {};
  auto expect = [](sluice_status status, const std::string& message) {
    EXPECT_EQ(status, SLUICE_INVALID_VALUE);
    EXPECT_EQ(sluice_last_error(), message + " is not allowed: a pointer");
  };
  auto expect_elements = [](sluice_status status, const std::string& name) {
    EXPECT_EQ(status, SLUICE_INVALID_VALUE);
    EXPECT_EQ(sluice_last_error(), name + " = null is not allowed: a pointer to the elements");
  };
  expect(sluice_explain(nullptr, &call.id, 1, &call.explanation, 1), "input = null");
  expect_elements(sluice_explain(&call.input, nullptr, 1, &call.explanation, 1), "ids");
  expect_elements(sluice_explain(&call.input, &call.id, 1, nullptr, 1), "explanations");
  ExpectOk(sluice_explain(&call.input, nullptr, 0, nullptr, 0));
  ExpectOk(call.Run());
  expect(sluice_explanation_sentence(nullptr, text, 8, &length), "explanation = null");
  expect(sluice_explanation_sentence(&call.explanation, text, 8, nullptr), "length = null");
  expect_elements(sluice_explanation_sentence(&call.explanation, nullptr, 8, &length), "text");
  EXPECT_EQ(sluice_explain(&call.input, &call.id, 1, &call.explanation, 0), SLUICE_INVALID_VALUE);
  EXPECT_STREQ(sluice_last_error(), "explanations.size() = 0 is not allowed: 1");
}

TEST(CExplain, ASentenceIsCutWhereTheRoomEnds) {
  Call call;
  ExpectOk(call.Run());
  char text[9] = "########";
  size_t length = 0;
  ExpectOk(sluice_explanation_sentence(&call.explanation, text, 5, &length));
  EXPECT_EQ(std::string(text, 6), std::string("it w\0#", 6));
  EXPECT_GT(length, 20u);
}

TEST(CExplain, AMadeUpExplanationIsRefusedOrTold) {
  size_t length = 0;
  sluice_explanation made_up = {};
  EXPECT_EQ(sluice_explanation_sentence(&made_up, nullptr, 0, &length), SLUICE_INVALID_VALUE);
  made_up.has_dropped_by = true;
  made_up.dropped_by = SLUICE_STAGE_DRAW;
  EXPECT_EQ(sluice_explanation_sentence(&made_up, nullptr, 0, &length), SLUICE_INVALID_VALUE);
  for (made_up.dropped_by = 0; made_up.dropped_by < SLUICE_STAGE_DRAW; ++made_up.dropped_by) {
    ExpectOk(sluice_explanation_sentence(&made_up, nullptr, 0, &length));
    EXPECT_GT(length, 10u);
  }
}

TEST(CExplain, StagesHaveTheirNames) {
  EXPECT_STREQ(sluice_stage_name(SLUICE_STAGE_TOP_P), "top-p");
  EXPECT_STREQ(sluice_stage_name(200), "unknown");
}

}  // namespace
}  // namespace sluice::test
