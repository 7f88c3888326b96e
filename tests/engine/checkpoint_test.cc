// What belongs to a checkpoint beside its weights, and how files that do not fit are named.
#include "sluice/checkpoint.hpp"

#include <gtest/gtest.h>

#include "tests/engine/model_folder.h"
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

TEST(GenerationConfig, ReadsWhatConcernsSamplingAndPassesOverTheRest) {
  const GenerationConfig config = ParseGenerationConfig(
      R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.9,)"
      R"("repetition_penalty": 1.1, "eos_token_id": [7, 9], "do_sample": true, "other": {}})");
  SamplingParams params;
  params.temperature = 0.6f;
  params.top_k = 20;
  params.top_p = 0.95f;
  params.min_p = 0.05f;
  params.typical_p = 0.9f;
  params.repetition_penalty = 1.1f;
  EXPECT_EQ(config.params, params);
  EXPECT_EQ(config.end_tokens, (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(ParseGenerationConfig(R"({"eos_token_id": 3, "top_p": null})").end_tokens,
            std::vector<int32_t>{3});
  EXPECT_EQ(OpenGenerationConfig("/nowhere").params, SamplingParams{});
}

TEST(GenerationConfig, NamesTheFieldThatCannotBe) {
  const auto refuse = [](const char* json, const char* parameter, const char* value,
                         const char* allowed) {
    ExpectError([&] { ParseGenerationConfig(json); }, parameter, value, allowed);
  };
  refuse("[]", "generation_config.json", "no JSON object", "a JSON object");
  refuse(R"({"top_k": 0.5})", "generation_config.json: top_k", "0.5", "[-1, 2147483647]");
  refuse(R"({"eos_token_id": [1, "x"]})", "generation_config.json: eos_token_id", "\"x\"",
         "a token id, or a list of them");
}

TEST(Checkpoint, EndsWithTheTokensOfBothConfigurations) {
  TinyFiles files({.end_tokens = "[5, 3]"});
  files.generation_config = R"({"eos_token_id": [9, 5, 500]})";  // 500 has no token
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  const auto ends = checkpoint.end_tokens();
  EXPECT_EQ(std::vector<int32_t>(ends.begin(), ends.end()), (std::vector<int32_t>{3, 5, 9}));
}

TEST(Checkpoint, EndsWithTheTokenizersTokenWhenNoConfigurationHasOne) {
  TinyFiles files;
  files.tokenizer_config = R"({"eos_token": {"content": "<|end|>"}})";
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  ASSERT_EQ(checkpoint.end_tokens().size(), 1u);
  EXPECT_EQ(checkpoint.end_tokens()[0], checkpoint.tokenizer().Id("<|end|>"));
}

TEST(Checkpoint, RendersChatsWithTheTemplateOfEitherFile) {
  const ChatMessage messages[] = {{"system", "Be \"short\"."}, {"user", "Hi"}};
  const std::string rendered = "<|begin|><|system|>Be \"short\".<|user|>Hi<|assistant|>";
  TinyFiles files;
  ExpectError([&] { Checkpoint::FromFiles(files.view()).text().RenderChat(messages); }, "chat",
              "a conversation",
              "a model with chat_template.jinja, or with chat_template in tokenizer_config.json",
              ErrorCode::kUnavailable);
  files.tokenizer_config = R"({"bos_token": "<|begin|>"})";
  files.chat_template = kTemplate;
  EXPECT_EQ(Checkpoint::FromFiles(files.view()).text().RenderChat(messages), rendered);

  files.tokenizer_config =
      std::string(R"({"bos_token": "<|begin|>", "chat_template": ")") + kTemplate + "\"}";
  files.chat_template.clear();
  EXPECT_EQ(Checkpoint::FromFiles(files.view()).text().RenderChat(messages), rendered);

  files.tokenizer_config = std::string(R"({"bos_token": "<|begin|>", "chat_template": [)") +
                           R"({"name": "tool_use", "template": "no"}, {"name": "default",)" +
                           R"( "template": ")" + kTemplate + "\"}]}";
  EXPECT_EQ(Checkpoint::FromFiles(files.view()).text().RenderChat(messages), rendered);
}

TEST(Checkpoint, OpensAFolder) {
  TinyFiles files;
  files.generation_config = R"({"top_k": 3})";
  files.chat_template = kTemplate;
  const ModelFolder folder(files);
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  EXPECT_EQ(checkpoint.vocab(), 427);
  EXPECT_EQ(checkpoint.head().weight.rows, 427);
  EXPECT_EQ(checkpoint.generation_config().params.top_k, 3);
  EXPECT_TRUE(checkpoint.text().has_chat_template());
  EXPECT_EQ(checkpoint.tokenizer().Encode("a").size(),
            Checkpoint::FromFiles(files.view()).tokenizer().Encode("a").size());
}

TEST(Checkpoint, ReadsSmallFilesBeforeTheWeights) {
  const auto refuse = [](std::string TinyFiles::* small, const char* text,
                         const std::string& parameter, const char* value, const char* allowed) {
    TinyFiles files;
    files.weights = "no weights at all";
    files.*small = text;
    const ModelFolder folder(files);
    ExpectError([&] { Checkpoint::FromFiles(files.view()); }, parameter, value, allowed);
    ExpectError([&] { Checkpoint::Open(folder.path()); }, parameter, value, allowed);
  };
  refuse(&TinyFiles::generation_config, "[]", "generation_config.json", "no JSON object",
         "a JSON object");
  refuse(&TinyFiles::tokenizer_config, "{", "tokenizer_config.json", "no JSON object",
         "a JSON object");
}

TEST(Checkpoint, IsItselfWhenItWasMovedFrom) {
  TinyFiles files;
  Checkpoint first = Checkpoint::FromFiles(files.view());
  // NOLINTBEGIN(bugprone-use-after-move,performance-move-const-arg)
  const Checkpoint second = std::move(first);
  EXPECT_EQ(first.vocab(), second.vocab());
  Model model = second.model();
  const Model other = std::move(model);
  EXPECT_EQ(model.info().vocab, other.info().vocab);
  first = Checkpoint::FromFiles(files.view());
  Checkpoint third = second;
  third = std::move(first);
  EXPECT_EQ(first.head().weight.rows, third.head().weight.rows);
  // NOLINTEND(bugprone-use-after-move,performance-move-const-arg)
}

TEST(Checkpoint, NamesATokenizerThatIsOfAnotherModel) {
  TinyFiles files({.vocab = 300});
  const ModelFolder folder(files);
  const Tokenizer tokenizer = Tokenizer::FromJson(files.tokenizer);
  const std::string token = "\"" + std::string(*tokenizer.Token(300)) + "\"";
  ExpectError([&] { Checkpoint::Open(folder.path()); }, folder.path() + "/tokenizer.json",
              "token 300, " + token, "ids below the 300 of the model's vocabulary");
}

TEST(Checkpoint, TakesSpecialTokensBeyondTheModelsVocabulary) {
  TinyFiles files({.vocab = 426});
  const std::string plain = R"("content":"<pad>","single_word":false,"lstrip":true,"rstrip":true,)"
                            R"("normalized":false,"special":)";
  const size_t at = files.tokenizer.find(plain + "false");
  ASSERT_NE(at, std::string::npos);
  files.tokenizer.replace(at, plain.size() + 5, plain + "true");
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  ASSERT_TRUE(checkpoint.tokenizer().IsSpecial(426));
  EXPECT_EQ(checkpoint.vocab(), 426);
}

TEST(Checkpoint, NamesAFolderWithoutATokenizer) {
  TinyFiles files;
  files.tokenizer.clear();
  const ModelFolder folder(files);
  ExpectError([&] { Checkpoint::Open(folder.path()); }, "model",
              "\"" + folder.path() + "\", without a tokenizer",
              "a folder with config.json, *.safetensors and tokenizer.json or tokenizer.model");
}

}  // namespace
}  // namespace sluice::test
