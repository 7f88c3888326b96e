// /tokenize, /detokenize and /v1/models: their bodies in and out.
#include "server/api/request/tokens_request.h"

#include <gtest/gtest.h>

#include "tests/server/api/parsed_json.h"
#include "tests/server/api/refused.h"
#include "tests/server/api/samples.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

TEST(TokenizeRequest, IsAPromptOrMessages) {
  const TokenizeRequest text = ParseTokenizeRequest(R"({"model":"m","prompt":"a\u0000b","foo":1})");
  EXPECT_EQ(text.model, "m");
  EXPECT_EQ(text.prompt, std::string_view("a\0b", 3));
  EXPECT_FALSE(text.is_chat);
  EXPECT_TRUE(text.adds_special_tokens);
  EXPECT_FALSE(text.returns_token_strs);
  EXPECT_FALSE(
      ParseTokenizeRequest(R"({"prompt":"","add_special_tokens":false})").adds_special_tokens);
  const TokenizeRequest chat = ParseTokenizeRequest(
      R"({"messages":[{"role":"user","content":"hi"}],"return_token_strs":true,
          "chat_template_kwargs":{"a":1},"add_generation_prompt":false})");
  EXPECT_TRUE(chat.is_chat);
  EXPECT_FALSE(chat.adds_special_tokens);
  EXPECT_TRUE(chat.parses_special_tokens);
  EXPECT_FALSE(text.parses_special_tokens);
  EXPECT_TRUE(
      ParseTokenizeRequest(R"({"prompt":"","parse_special_tokens":true})").parses_special_tokens);
  EXPECT_TRUE(chat.returns_token_strs);
  EXPECT_EQ(chat.chat_variables,
            R"({"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false,)"
            R"("continue_final_message":false,"a":1})");
}

TEST(TokenizeRequest, NamesWhatIsWrong) {
  const test::BadBody cases[] = {
      {"{}", "prompt", "either prompt or messages"},
      {R"({"prompt":"a","messages":[{"role":"user","content":"hi"}]})", "prompt", "either"},
      {R"({"prompt":["a"]})", "prompt", "a text"},
      {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens", "true or false"},
      {R"({"messages":[]})", "messages", "an empty list"},
      {R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", "tools", "not supported",
       "unsupported_parameter"},
      {"[]", "", "no object", "json_parse_error"},
      {"{\"prompt\":\"\xff\"}", "", "malformed", "json_parse_error"},
  };
  for (const test::BadBody& bad : cases) {
    test::ExpectRefused(bad, [](std::string_view body) { ParseTokenizeRequest(body); });
  }
}

TEST(DetokenizeRequest, IsAListOfIds) {
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens":[1,2.0],"model":"m"})").tokens,
            (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens":[]})").tokens.empty());
  const test::BadBody cases[] = {
      {"{}", "tokens", "missing tokens: a list"},
      {R"({"tokens":null})", "tokens", "missing tokens: a list"},
      {R"({"tokens":"1"})", "tokens", "a list"},
      {R"({"tokens":[-1]})", "tokens", "whole number"},
      {R"({"tokens":[2147483648]})", "tokens", "whole number"},
  };
  for (const test::BadBody& bad : cases) {
    test::ExpectRefused(bad, [](std::string_view body) { ParseDetokenizeRequest(body); });
  }
}

TEST(TokenizeBody, HasIdsAndHowTheyAreSpelled) {
  const std::vector<int32_t> ids = {test::kHello, test::kEuroBegin, test::kEndMark};
  const Tokenizer tokenizer = test::SampleTokenizer();
  EXPECT_EQ(TokenizeBody(ids, 4096, tokenizer, false),
            R"({"count":3,"max_model_len":4096,"tokens":[0,2,5],"token_strs":null})");
  EXPECT_EQ(ParsedJson(TokenizeBody(ids, 1, tokenizer, true)).Json("/token_strs"),
            R"(["Hello","âĤ","<end>"])");
  EXPECT_EQ(TokenizeBody({}, 1, tokenizer, true),
            R"({"count":0,"max_model_len":1,"tokens":[],"token_strs":[]})");
}

TEST(DetokenizeBody, HasTheText) {
  const std::string text = test::HostileText();
  EXPECT_EQ(ParsedJson(DetokenizeBody(text)).Text("/prompt"), text);
}

TEST(ModelsBody, IsAListOfCards) {
  const ModelCard cards[] = {{"a", 5, 4096}, {"b\"", 6, 1}};
  const std::string first =
      R"({"id":"a","object":"model","created":5,"owned_by":"sluice","root":"a","parent":null,)"
      R"("max_model_len":4096})";
  EXPECT_EQ(ModelBody(cards[0]), first);
  EXPECT_EQ(ModelsBody(cards),
            R"({"object":"list","data":[)" + first + "," + ModelBody(cards[1]) + "]}");
  EXPECT_EQ(ParsedJson(ModelsBody(cards)).Text("/data/1/id"), "b\"");
  EXPECT_EQ(ModelsBody({}), R"({"object":"list","data":[]})");
}

}  // namespace
}  // namespace sluice::server
