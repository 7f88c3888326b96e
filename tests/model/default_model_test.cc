// models/default is what its card says: the sizes, a page that it predicts as well as it did where
// it was trained, and the words with which it goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "sluice/tokenizer.hpp"
#include "tests/model/fixture.h"
#include "tests/support/backends.h"

namespace sluice::test {
namespace {

const std::string kFolder = SLUICE_DEFAULT_MODEL;
constexpr int32_t kEndOfText = 0;  // stands in front of every book that the model has read

Tokenizer OpenTokenizer() { return Tokenizer::FromFile(kFolder + "/tokenizer.json"); }

TEST(DefaultModel, HasTheSizesOfItsCard) {
  const Model model = Model::Open(kFolder);
  const ModelInfo& info = model.info();
  // The same layers as Llama; transformers takes 6 heads of 64 at width 320 by this name alone.
  EXPECT_EQ(info.architecture, "MistralForCausalLM");
  EXPECT_EQ(info.parameters, 12'621'120);
  EXPECT_EQ(info.vocab, 8192);
  EXPECT_EQ(info.dim, 320);
  EXPECT_EQ(info.layers, 8);
  EXPECT_EQ(info.heads, 6);
  EXPECT_EQ(info.kv_heads, 2);
  EXPECT_EQ(info.head_dim, 64);
  EXPECT_EQ(info.ffn_dim, 960);
  EXPECT_EQ(info.context, 1024);
  EXPECT_TRUE(info.has_tied_head);
  EXPECT_EQ(info.end_tokens, std::vector<int32_t>{kEndOfText});

  const Tokenizer tokenizer = OpenTokenizer();
  EXPECT_EQ(tokenizer.size(), 8192);
  EXPECT_EQ(tokenizer.Token(kEndOfText), "<|endoftext|>");
  EXPECT_TRUE(tokenizer.IsSpecial(kEndOfText));
}

// The scales of its embeddings are powers of two for this: else the head would be fp32, which is
// right too, at twice the bytes for every token.
TEST(DefaultModel, ItsHeadIsBf16) {
  EXPECT_EQ(Model::Open(kFolder).head().weight.dtype, DType::kBf16);
}

class DefaultModelText : public testing::TestWithParam<Backend> {
 protected:
  DefaultModelText() : model_(Model::Open(kFolder)), tokenizer_(OpenTokenizer()) {}

  Decoder MakeDecoder() const {
    return Decoder(model_, {.cache_tokens = model_.info().context, .backend = GetParam()});
  }

  Model model_;
  Tokenizer tokenizer_;
};
INSTANTIATE_TEST_SUITE_P(All, DefaultModelText, testing::ValuesIn(AvailableBackends()),
                         [](const auto& test) { return TestNameOf(test.param); });

// -ln of the softmax at that id.
double Nats(std::span<const float> logits, int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(id)];
}

// The beginning of The Scarecrow of Oz. The model has read it, so the figure says nothing of how
// good the model is. It is that of models/train/model_files.py, which computes the same in PyTorch,
// in another order: now and then an activation goes to the next of its 255 steps. Of nine runs
// there, with norms changed by a millionth, the mean was kMean and the standard deviation 0.0004;
// the tolerance is five of them. Activations cut off instead of rounded cost 0.003, another token
// in front 0.005. Finer faults of a part are layer_test's to find.
constexpr double kMean = 1.0443;
constexpr double kTolerance = 0.002;

TEST_P(DefaultModelText, APageTakesTheBitsPerByteThatItTookInTraining) {
  const std::string page = ReadText(FixtureFolder("passage.txt"));
  std::vector<int32_t> tokens = tokenizer_.Encode(page);
  tokens.insert(tokens.begin(), kEndOfText);
  ASSERT_EQ(tokens.size(), 481u);

  Decoder decoder = MakeDecoder();
  const std::span<const int32_t> context = std::span(tokens).first(tokens.size() - 1);
  const std::vector<float> logits =
      LogitsOf(model_, Forwarded(decoder, decoder.Add(), context, context.size()), GetParam());
  const size_t vocab = static_cast<size_t>(model_.info().vocab);
  double nats = 0.0;
  for (size_t i = 0; i < context.size(); ++i) {
    nats += Nats(std::span(logits).subspan(i * vocab, vocab), tokens[i + 1]);
  }
  const double bits_per_byte = nats / std::log(2.0) / static_cast<double>(page.size());
  RecordProperty("bits_per_byte", std::to_string(bits_per_byte));
  EXPECT_NEAR(bits_per_byte, kMean, kTolerance);
}

// PyTorch takes the same ids. The nearest step is decided by 0.07 of a logit, which is as much as
// such a step of an activation can move; but every backend has the same bits.
TEST_P(DefaultModelText, GreedyWordsAreTheSameEverywhere) {
  Decoder decoder = MakeDecoder();
  const std::vector<int32_t> prompt = tokenizer_.Encode("Once upon a time");
  ASSERT_EQ(prompt, (std::vector<int32_t>{3768, 602, 259, 555}));
  // " there was a man who had a daughter who was so beautiful that no one could have her equal.", a
  // new line and "'Well, well!' said the man, 'I".
  EXPECT_EQ(GreedyContinuation(decoder, prompt, 32, GetParam()),
            (std::vector<int32_t>{459,  309, 259, 441, 442, 343, 259, 1282, 442, 309, 362,
                                  1062, 315, 444, 420, 467, 392, 339, 5408, 14,  199, 7,
                                  982,  12,  674, 778, 352, 261, 441, 12,   413, 41}));
}

}  // namespace
}  // namespace sluice::test
