// What text needs of a model, without its weights.
#include "sluice/model_text.hpp"

#include <gtest/gtest.h>

#include "tests/engine/model_folder.h"
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

std::vector<int32_t> EndsOf(const ModelText& text) {
  return {text.end_tokens().begin(), text.end_tokens().end()};
}

ModelText WithTemplate(const std::string& source, const std::string& tokenizer_config = "") {
  TinyFiles files;
  files.chat_template = source;
  files.tokenizer_config = tokenizer_config;
  return ModelText::FromFiles(files.view().text);
}

TEST(ModelText, OpensAFolderWithoutWeights) {
  TinyFiles files({.end_tokens = "[5, 3]"});
  files.weights.clear();
  files.generation_config = R"({"top_k": 3, "eos_token_id": 9})";
  files.chat_template = "{{ messages[0].content }}";
  const ModelFolder folder(files);
  const ModelText text = ModelText::Open(folder.path());
  EXPECT_EQ(text.tokenizer().size(), 427);
  EXPECT_EQ(text.generation_config().params.top_k, 3);
  const ModelText without = text.WithParamDefaults(ParamDefaultsByName("vllm"));
  EXPECT_EQ(without.generation_config().params, SamplingParams{});
  EXPECT_EQ(without.generation_config().end_tokens, text.generation_config().end_tokens);
  EXPECT_EQ(text.WithParamDefaults(ParamDefaults::kModel).generation_config().params.top_k, 3);
  EXPECT_EQ(EndsOf(text), (std::vector<int32_t>{3, 5, 9}));
  EXPECT_TRUE(text.has_chat_template());
}

TEST(ModelText, NeedsNothingButATokenizer) {
  TinyFiles files;
  files.config.clear();
  files.weights.clear();
  const ModelText text = ModelText::FromFiles(files.view().text);
  EXPECT_EQ(EndsOf(text), std::vector<int32_t>{});
  EXPECT_EQ(text.vocab(), 427);
  EXPECT_FALSE(text.has_chat_template());
}

// Heads are padded, and a model may have fewer tokens than its tokenizer.
TEST(ModelText, HasAsManyTokensAsTheModel) {
  const auto vocab = [](const std::string& config) {
    TinyFiles files;
    files.config = config;
    return ModelText::FromFiles(files.view().text).vocab();
  };
  EXPECT_EQ(vocab(R"({"model_type": "x", "vocab_size": 448})"), 448);
  EXPECT_EQ(vocab(R"({"model_type": "x", "vocab_size": 400})"), 400);
  EXPECT_EQ(vocab(R"({"model_type": "x", "text_config": {"vocab_size": 512}})"), 512);
  EXPECT_EQ(vocab(R"({"model_type": "x"})"), 427);
}

// A frontend needs nothing of a model but its text: an engine elsewhere may run other families.
TEST(ModelText, ReadsTheEndTokensOfAnyFamily) {
  const auto ends = [](const std::string& config) {
    TinyFiles files;
    files.config = config;
    return EndsOf(ModelText::FromFiles(files.view().text));
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ends(R"({"model_type": "mamba", "eos_token_id": [7, 2]})"), (Ids{2, 7}));
  EXPECT_EQ(ends(R"({"model_type": "x", "text_config": {"eos_token_id": 8}, "eos_token_id": 9})"),
            (Ids{8}));
  EXPECT_EQ(ends(R"({"model_type": "x", "text_config": {}, "eos_token_id": 9})"), (Ids{9}));
  EXPECT_EQ(ends(R"({"model_type": "gemma3", "text_config": {"eos_token_id": 8}})"), (Ids{8}));
}

TEST(ModelText, NamesWhatIsWrongInTheConfiguration) {
  TinyFiles files;
  files.config = R"({"vocab_size": 400, "eos_token_id": 400})";
  ExpectError([&] { ModelText::FromFiles(files.view().text); }, "config.json: eos_token_id", "400",
              "[0, 399]");
}

TEST(ModelText, RendersWhateverVariablesTheTemplateKnows) {
  const ModelText text = WithTemplate(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
      "{{ extra.depth }}{{ add_generation_prompt }}",
      R"({"bos_token": "<s>"})");
  EXPECT_EQ(text.RenderChatJson(R"( {"messages": [{"role": "tool", "content": "4"}],)"
                                R"( "extra": {"depth": 2}, "add_generation_prompt": false})"),
            "<s>tool=4;2False");
}

TEST(ModelText, GivesTheTemplateTheTokensOfTheTokenizersConfiguration) {
  const ModelText text =
      WithTemplate("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token is defined }}",
                   R"({"bos_token": {"content": "<s>"}, "pad_token": "<pad>", "unk_token": null})");
  EXPECT_EQ(text.RenderChatJson("{}"), "<s>||<pad>|False");
  EXPECT_EQ(text.RenderChatJson(" { \n } "), "<s>||<pad>|False");
  EXPECT_EQ(text.RenderChatJson(R"({"bos_token": "mine"})"), "mine||<pad>|False");
}

TEST(ModelText, RefusesVariablesThatAreNoObject) {
  const ModelText text = WithTemplate("x");
  for (const char* variables : {"", "[]", "7", "{", "{]", R"({"a" 1})"}) {
    EXPECT_THROW(text.RenderChatJson(variables), Error) << variables;
  }
  ExpectError([&] { text.RenderChatJson("[]"); }, "variables", "no object",
              "one JSON object in UTF-8");
}

TEST(ModelText, TakesAnotherTemplateAndLeavesTheFirstAsItWas) {
  const ModelText first = WithTemplate("first");
  const ModelText second = first.WithChatTemplate("second{{ bos_token }}");
  EXPECT_EQ(first.RenderChatJson("{}"), "first");
  EXPECT_EQ(second.RenderChatJson("{}"), "second");
  EXPECT_EQ(second.tokenizer().size(), first.tokenizer().size());
  EXPECT_THROW(first.WithChatTemplate("{% if %}"), Error);
}

TEST(ModelText, WithoutATemplateSaysWhereOneWouldBe) {
  ExpectError([&] { (void)WithTemplate("").RenderChatJson("{}"); }, "chat", "a conversation",
              "a model with chat_template.jinja, or with chat_template in tokenizer_config.json",
              ErrorCode::kUnavailable);
}

// The built-in model: an answer is the end of the text that the messages are.
TEST(ModelText, OfStoriesGoesOnFromTheLastMessage) {
  const ModelText text = ModelText::Open(SLUICE_FIXTURES "/../../models/default");
  const auto rendered = [&](std::vector<ChatMessage> messages) {
    return text.RenderChat(messages);
  };
  EXPECT_EQ(rendered({{"user", "Once upon a time"}}), "Once upon a time");
  EXPECT_EQ(rendered({{"system", "Be brief."}, {"user", "Once upon a time"}}), "Once upon a time");
  EXPECT_EQ(
      rendered(
          {{"user", "Once upon a time"}, {"assistant", " there was a king."}, {"user", "One day"}}),
      "Once upon a time there was a king.\nOne day");
}

}  // namespace
}  // namespace sluice::test
