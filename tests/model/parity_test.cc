// Logits and greedy continuations are those of Hugging Face transformers, for every family of
// models on every backend. fixtures/make_models.py made the checkpoints and what is expected.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/model/fixture.h"
#include "tests/support/backends.h"

namespace sluice::test {
namespace {

// Of a row's largest logit. Both sides compute in fp32 and add up in another order, which moves a
// sum of n terms by about sqrt(n) 2^-24, in every layer anew: 5e-6 at most over all fixtures. A
// window that is off by one, a scaling or a cap that is left out moves the logits by 1e-2 and more,
// GELU by erf instead of tanh by 2e-4.
constexpr double kTolerance = 2e-5;

class ModelParity : public testing::TestWithParam<std::tuple<const char*, Backend>> {
 protected:
  ModelParity() : model_(OpenFixture(name())), expected_(ExpectedOf(name())) {}

  static std::string name() { return std::get<0>(GetParam()); }
  static Backend backend() { return std::get<1>(GetParam()); }
  size_t vocab() const { return static_cast<size_t>(model_.info().vocab); }

  Model model_;
  Expected expected_;
};

TEST_P(ModelParity, LogitsAreThoseOfTransformers) {
  const size_t dim = static_cast<size_t>(model_.info().dim);
  const std::vector<float> hidden = HiddenStates(model_, expected_.Tokens(), backend());
  ASSERT_EQ(expected_.logits.size(), expected_.positions.size() * vocab());
  double worst = 0.0;
  for (size_t row = 0; row < expected_.positions.size(); ++row) {
    const size_t position = static_cast<size_t>(expected_.positions[row]);
    const std::vector<float> logits =
        LogitsOf(model_, std::span(hidden).subspan(position * dim, dim), backend());
    const float* wanted = expected_.logits.data() + row * vocab();
    double largest = 0.0;
    double difference = 0.0;
    for (size_t id = 0; id < vocab(); ++id) {
      ASSERT_TRUE(std::isfinite(logits[id])) << "position " << position;
      largest = std::max(largest, std::fabs(static_cast<double>(wanted[id])));
      difference = std::max(difference, std::fabs(static_cast<double>(logits[id]) - wanted[id]));
    }
    EXPECT_LE(difference / largest, kTolerance) << "position " << position;
    worst = std::max(worst, difference / largest);
  }
  RecordProperty("worst_difference", std::to_string(worst));
}

// Token by token behind the prompt, as a model is used. No step is decided by less than 1e-3 of the
// logits' range.
TEST_P(ModelParity, GreedyContinuationIsThatOfTransformers) {
  Decoder decoder(model_, {.cache_tokens = kFixtureTokens, .backend = backend()});
  EXPECT_EQ(GreedyContinuation(decoder, expected_.prompt, expected_.greedy.size(), backend()),
            expected_.greedy);
}

std::string ParityName(const testing::TestParamInfo<std::tuple<const char*, Backend>>& info) {
  const Backend backend = std::get<1>(info.param);
  return std::get<0>(info.param) + ("_" + BackendTestName({{backend, DType::kF32}, 0}));
}

INSTANTIATE_TEST_SUITE_P(All, ModelParity,
                         testing::Combine(testing::ValuesIn(kFixtures),
                                          testing::ValuesIn(AvailableBackends())),
                         ParityName);

// What a config.json leaves out has the default of its family, and what the command line shows is
// what the files hold.
TEST(ModelInfo, SaysWhatTheFilesSay) {
  const ModelInfo llama = OpenFixture("llama2").info();
  EXPECT_EQ(llama.architecture, "LlamaForCausalLM");
  EXPECT_EQ(llama.vocab, 131);
  EXPECT_EQ(llama.dim, 50);
  EXPECT_EQ(llama.layers, 2);
  EXPECT_EQ(llama.heads, 5);
  EXPECT_EQ(llama.kv_heads, 5);
  EXPECT_EQ(llama.head_dim, 10);
  EXPECT_EQ(llama.ffn_dim, 54);
  EXPECT_EQ(llama.context, 256);
  EXPECT_EQ(llama.parameters, 2 * 131 * 50 + 50 + 2 * (4 * 50 * 50 + 3 * 50 * 54 + 2 * 50));
  EXPECT_FALSE(llama.has_tied_head);
  EXPECT_EQ(llama.logit_softcap, 0.0f);
  EXPECT_EQ(llama.end_tokens, std::vector<int32_t>{2});

  EXPECT_EQ(OpenFixture("llama3").info().end_tokens, (std::vector<int32_t>{2, 5, 7}));
  EXPECT_TRUE(OpenFixture("qwen2").info().has_tied_head);
  EXPECT_EQ(OpenFixture("qwen3").info().head_dim, 20);
  EXPECT_EQ(OpenFixture("gemma2").info().logit_softcap, 12.0f);

  const ModelInfo gemma = OpenFixture("gemma3").info();
  EXPECT_EQ(gemma.architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(gemma.layers, 7);
  EXPECT_EQ(gemma.context, 131072);
  EXPECT_TRUE(gemma.has_tied_head);
  EXPECT_EQ(gemma.end_tokens, (std::vector<int32_t>{1, 106}));
}

}  // namespace
}  // namespace sluice::test
