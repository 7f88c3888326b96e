// Conversations: which messages are taken, and that the template gets them as they were.
#include <gtest/gtest.h>

#include "server/api/request/completion_request.h"
#include "server/api/response/stream_writer.h"
#include "tests/server/api/parsed_json.h"
#include "tests/server/api/refused.h"
#include "tests/text/vocabularies.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

std::string Body(std::string_view messages, std::string_view fields = "") {
  return std::string("{\"messages\":").append(messages).append(fields).append("}");
}
CompletionRequest Parsed(std::string_view messages, std::string_view fields = "") {
  return ParseCompletionRequest(Api::kChat, Body(messages, fields), {});
}
std::string Variables(std::string_view messages, std::string_view fields = "") {
  return Parsed(messages, fields).chat_variables;
}
void ExpectBad(std::string_view messages, const std::string& param, const std::string& in_message,
               std::string_view fields = "") {
  test::ExpectRefused({Body(messages, fields), param, in_message},
                      [](std::string_view body) { ParseCompletionRequest(Api::kChat, body, {}); });
}

constexpr std::string_view kOne = R"([{"role":"user","content":"hi"}])";

TEST(ChatRequest, EveryRoleReachesTheTemplate) {
  EXPECT_EQ(Variables(R"([{"role":"system","content":"a"},{"content":"b","role":"developer"},
                          {"role":"user","content":"c","name":"n"},
                          {"role":"assistant","content":"d","reasoning_content":"r","refusal":null},
                          {"role":"tool","content":"e","tool_call_id":"i"}])"),
            R"({"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},)"
            R"({"role":"user","content":"c","name":"n"},)"
            R"({"role":"assistant","content":"d","reasoning_content":"r"},)"
            R"({"role":"tool","content":"e","tool_call_id":"i"}],)"
            R"("add_generation_prompt":true,"continue_final_message":false})");
}

TEST(ChatRequest, PartsAreJoinedByLineFeeds) {
  const std::string parts = R"([{"role":"user","content":[{"type":"text","text":"a"},
                                {"text":"b","type":"text","extra":[1]}]}])";
  EXPECT_EQ(ParsedJson(Variables(parts)).Text("/messages/0/content"), "a\nb");
  EXPECT_EQ(ParsedJson(Variables(R"([{"role":"user","content":[]}])")).Text("/messages/0/content"),
            "");
}

TEST(ChatRequest, AnAssistantMayHaveNoContent) {
  for (const std::string message :
       {R"({"role":"assistant"})", R"({"role":"assistant","content":null})",
        R"({"role":"assistant","content":null,"tool_calls":[]})",
        R"({"role":"assistant","content":null,"tool_calls":null,"function_call":null})"}) {
    EXPECT_EQ(ParsedJson(Variables("[" + message + "]")).Json("/messages/0"),
              R"({"role":"assistant","content":""})");
  }
}

TEST(ChatRequest, TheTemplateGetsTextsToTheByte) {
  const std::string text = test::HostileText();
  const std::string quoted = test::JsonText(text);
  const std::string variables =
      Variables("[{\"role\":\"user\",\"content\":" + quoted + ",\"name\":" + quoted + "}]",
                ",\"chat_template_kwargs\":{" + quoted + ":[" + quoted + "]}");
  const ParsedJson json(variables);
  std::string escaped;
  AppendEscaped(escaped, text);
  EXPECT_EQ(json.Text("/messages/0/content"), text);
  EXPECT_EQ(json.Text("/messages/0/name"), text);
  EXPECT_TRUE(variables.ends_with("[\"" + escaped + "\"]}"));
}

TEST(ChatRequest, TemplateFieldsAreHandedOn) {
  const ParsedJson json(Variables(
      kOne, R"(,"chat_template_kwargs":{ "a" : [1, -2.50e3,true,null, {"b":{}}], "enable_thinking"
      :false,"a":2, "big":123456789012345678 },"add_generation_prompt":false)"));
  EXPECT_EQ(json.Json("/a"), R"([1,-2500.0,true,null,{"b":{}}])");
  EXPECT_EQ(json.Json("/enable_thinking"), "false");
  EXPECT_EQ(json.Integer("/big"), 123456789012345678);
  EXPECT_EQ(json.Json("/add_generation_prompt"), "false");
  ExpectBad(kOne, "chat_template_kwargs", "an object", ",\"chat_template_kwargs\":[]");
  ExpectBad(kOne, "chat_template_kwargs.messages", "of the request itself",
            ",\"chat_template_kwargs\":{\"messages\":[]}");
  std::string many;
  for (int i = 0; i < 257; ++i) many.append((i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0");
  ExpectBad(kOne, "chat_template_kwargs", "at most 256 fields",
            ",\"chat_template_kwargs\":{" + many + "}");
}

TEST(ChatRequest, AFinalMessageMayBeContinued) {
  const std::string chat =
      R"([{"role":"user","content":"q"},{"role":"assistant","content":" so far "}])";
  const CompletionRequest request = Parsed(chat, ",\"continue_final_message\":true");
  EXPECT_EQ(request.final_message, " so far ");
  EXPECT_EQ(ParsedJson(request.chat_variables).Json("/add_generation_prompt"), "false");
  EXPECT_EQ(ParsedJson(request.chat_variables).Json("/continue_final_message"), "true");
  EXPECT_EQ(Parsed(chat).final_message, std::nullopt);
  ExpectBad(chat, "continue_final_message", "add_generation_prompt",
            ",\"continue_final_message\":true,\"add_generation_prompt\":true");
}

TEST(ChatRequest, ThePromptEndsWithTheFinalMessage) {
  const auto ended = [](std::string prompt, std::string_view message) {
    ChatText chat{prompt, {{0, 1}, {2, prompt.size()}}};
    EndWithMessage(chat, message);
    // What the template wrote itself ends with the text.
    EXPECT_EQ(chat.own.back().end, chat.text.size());
    return chat.text;
  };
  EXPECT_EQ(ended("<a>so</a><a>so</a>", "so"), "<a>so</a><a>so");
  EXPECT_EQ(ended("<a> so far </a>", " so far "), "<a> so far ");
  EXPECT_EQ(ended("<a>so far</a>", " so far "), "<a>so far");  // the template stripped it
  for (const std::string_view empty : {"", " \n"}) {
    EXPECT_EQ(
        test::RefusalOf([&] { ended("<a> \n</a>", empty); }).message,
        "continue_final_message: the last message has no text that the model could go on with");
  }
  EXPECT_EQ(test::RefusalOf([&] { ended("<a>other</a>", "so"); }).param, "continue_final_message");
}

TEST(ChatRequest, NamesWhatIsWrongWithAMessage) {
  ExpectBad("[]", "messages", "an empty list");
  ExpectBad("{}", "messages", "a list");
  ExpectBad("\"hi\"", "messages", "a list");
  ExpectBad("[\"hi\"]", "messages[0]", "an object");
  ExpectBad(R"([{"content":"x"}])", "messages[0].role", "missing ");
  ExpectBad(R"([{"role":"user","content":"x"},{"role":"robot","content":"x"}])", "messages[1].role",
            "\"robot\"");
  ExpectBad(R"([{"role":null,"content":"x"}])", "messages[0].role", "null");
  ExpectBad(R"([{"role":"user"}])", "messages[0].content", "missing ");
  ExpectBad(R"([{"role":"user","content":null}])", "messages[0].content", "missing ");
  ExpectBad(R"([{"role":"system","content":null}])", "messages[0].content", "missing ");
  ExpectBad(R"([{"role":"user","content":7}])", "messages[0].content", "a text or a list");
  ExpectBad(R"([{"role":"user","content":["x"]}])", "messages[0].content[0]", "an object");
  ExpectBad(R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url",
               "image_url":{"url":"x"}}]}])",
            "messages[0].content[1].type", "\"image_url\"");
  ExpectBad(R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type",
            "missing ");
  ExpectBad(R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
            "missing ");
  ExpectBad(R"([{"role":"user","content":"x","name":5}])", "messages[0].name", "a text");
  ExpectBad(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}])",
            "messages[0].tool_calls[0].function", "missing ");
  ExpectBad(R"([{"role":"assistant","content":"","function_call":{"name":"x"}}])",
            "messages[0].function_call", "tool_calls has the calls");
}

TEST(ChatRequest, StringsThatSpellASpecialTokenAreRefusedWhereTheServerDoesSo) {
  const RequestLimits limits{.refused_texts = {"<|end|>", "<\"q\\>"}};
  struct Case {
    const char* fields;
    const char* param;
  };
  const Case cases[] = {
      {R"("messages":[{"role":"user","content":"a"},{"role":"user","content":"x<|end|>y"}])",
       "messages[1].content"},
      {R"("messages":[{"role":"user","content":"<\u007cend|>"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[{"type":"text","text":"<|end|>"}]}])",
       "messages[0].content"},
      {R"("messages":[{"role":"user","content":"a","name":"<|end|>"}])", "messages[0].name"},
      {R"("messages":[{"role":"tool","content":"a","tool_call_id":"<|end|>"}])",
       "messages[0].tool_call_id"},
      {R"("messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"a":["<|end|>"]})",
       "chat_template_kwargs.a"},
      {R"("messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"a":"<\"q\\>"})",
       "chat_template_kwargs.a"},
  };
  for (const Case& c : cases) {
    const std::string body = std::string("{") + c.fields + "}";
    const ApiError error =
        test::RefusalOf([&] { ParseCompletionRequest(Api::kChat, body, {}, limits); });
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, c.param) << body;
    EXPECT_EQ(error.code, "special_token");
    EXPECT_EQ(error.message.find(std::string(c.param) + " has the text \"<"), 0u) << error.message;
    EXPECT_NO_THROW(ParseCompletionRequest(Api::kChat, body, {})) << body;
  }
  EXPECT_NO_THROW(ParseCompletionRequest(
      Api::kChat, R"({"messages":[{"role":"user","content":"<|end| >"}]})", {}, limits));
}

TEST(ChatRequest, UnknownFieldsOfMessagesAreListed) {
  EXPECT_EQ(Parsed(R"([{"role":"user","content":"x","cache":{"a":[1]}},
                       {"role":"user","content":"x","cache":1}])")
                .unknown,
            std::vector<std::string>{"messages[].cache"});
}

TEST(ChatRequest, OfAMessagesFieldThatComesTwiceTheFirstOneCounts) {
  EXPECT_EQ(ParsedJson(Variables(R"([{"role":"user","content":"a","content":"b","role":"x"}])"))
                .Json("/messages/0"),
            R"({"role":"user","content":"a"})");
}

}  // namespace
}  // namespace sluice::server
