// tokenizer.model and *.tiktoken: ids and texts are those of sentencepiece and tiktoken
// (tests/fixtures/make_models.py).
#include <gtest/gtest.h>
#include <simdjson.h>

#include <string>
#include <vector>

#include "sluice/detokenizer.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::test {
namespace {

std::string Folder() { return std::string(SLUICE_FIXTURES) + "/tokenizers/"; }

std::vector<int32_t> IdsOf(simdjson::dom::element list) {
  std::vector<int32_t> ids;
  for (const auto id : list.get_array()) ids.push_back(static_cast<int32_t>(int64_t{id}));
  return ids;
}

class SentencePieceModel : public testing::TestWithParam<const char*> {};

TEST_P(SentencePieceModel, EncodesAndDecodesAsItsLibrary) {
  simdjson::dom::parser parser;
  const simdjson::dom::element cases = parser.load(Folder() + "model_cases.json")[GetParam()];
  const Tokenizer tokenizer =
      Tokenizer::FromFile(Folder() + "sentencepiece_" + GetParam() + ".model");
  for (const auto encoded : cases["encoded"].get_array()) {
    const std::string_view text = encoded.at(0);
    EXPECT_EQ(tokenizer.Encode(text, {.add_special_tokens = false}), IdsOf(encoded.at(1)))
        << encoded;
  }
  for (const auto decoded : cases["decoded"].get_array()) {
    const std::string_view text = decoded.at(1);
    // The library replaces each byte that is not UTF-8.
    if (text.find("\uFFFD") != std::string_view::npos) continue;
    EXPECT_EQ(tokenizer.Decode(IdsOf(decoded.at(0)), false), text) << decoded;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceModel,
                         testing::Values("bpe", "bpe_plain", "unigram", "unigram_rules"),
                         [](const auto& model) { return std::string(model.param); });

// Files of the kind that T5 and XLM-R have: Unigram, and SentencePiece's map of characters as
// Hugging Face applies it.
TEST(Unigram, EncodesAsHuggingFace) {
  simdjson::dom::parser parser;
  const simdjson::dom::element cases = parser.load(Folder() + "model_cases.json");
  for (const std::string name : {"t5", "unigram_bytes"}) {
    const Tokenizer tokenizer = Tokenizer::FromFile(Folder() + name + ".json");
    for (const auto encoded : cases[name]["encoded"].get_array()) {
      const std::string_view text = encoded.at(0);
      EXPECT_EQ(tokenizer.Encode(text, {.parse_special_tokens = true}), IdsOf(encoded.at(1)))
          << name << encoded;
    }
  }
}

TEST(Tiktoken, EncodesAsItsLibrary) {
  simdjson::dom::parser parser;
  const simdjson::dom::element cases = parser.load(Folder() + "model_cases.json")["tiktoken"];
  std::vector<SpecialToken> special;
  for (const auto token : cases["special"].get_object()) {
    special.push_back({token.key, static_cast<int32_t>(int64_t{token.value})});
  }
  for (const auto model : cases["patterns"].get_object()) {
    const Tokenizer tokenizer =
        Tokenizer::FromFile(Folder() + "gpt2.tiktoken",
                            {.tiktoken = {.pattern = std::string_view(model.value["pattern"]),
                                          .special_tokens = special}});
    for (const auto encoded : model.value["encoded"].get_array()) {
      const std::string_view text = encoded.at(0);
      EXPECT_EQ(tokenizer.Encode(text, {.parse_special_tokens = true}), IdsOf(encoded.at(1)))
          << model.key << encoded;
      EXPECT_EQ(tokenizer.Encode(text), IdsOf(encoded.at(2))) << model.key << encoded;
    }
  }
}

}  // namespace
}  // namespace sluice::test
