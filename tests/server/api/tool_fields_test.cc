// Tools, the choice of them, and calls in the history of a chat.
#include "server/api/request/tool_fields.h"

#include <gtest/gtest.h>

#include "server/api/request/completion_request.h"
#include "tests/server/api/refused.h"

namespace sluice::server {
namespace {

constexpr std::string_view kUser = R"({"messages":[{"role":"user","content":"a"}])";
constexpr std::string_view kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,)"
    R"("parameters":{"type":"object","properties":{"b":{"type":"integer"},"a":{}}}}},)"
    R"({"type":"function","function":{"name":"g"}}])";

CompletionRequest Parsed(const std::string& fields) {
  return ParseCompletionRequest(Api::kChat, std::string(kUser) + fields + "}", {});
}
void ExpectBad(const std::string& fields, const std::string& param, const std::string& message) {
  test::ExpectRefused({std::string(kUser) + fields + "}", param, message},
                      [](std::string_view body) { ParseCompletionRequest(Api::kChat, body, {}); });
}

TEST(ToolFields, ReachTheTemplateAsTheyAre) {
  const CompletionRequest request = Parsed(std::string(kTools));
  ASSERT_EQ(request.tools.tools.size(), 2u);
  EXPECT_EQ(request.tools.tools[0].name, "f");
  EXPECT_TRUE(request.tools.tools[0].is_strict);
  EXPECT_EQ(request.tools.tools[0].parameters,
            R"({"type":"object","properties":{"b":{"type":"integer"},"a":{}}})");
  EXPECT_EQ(request.tools.tools[1].parameters, "");
  EXPECT_EQ(request.tools.choice, CallChoice::kAuto);
  EXPECT_TRUE(request.tools.is_parallel);
  EXPECT_EQ(request.chat_variables,
            std::string(R"({"messages":[{"role":"user","content":"a"}],)") +
                R"("add_generation_prompt":true,"continue_final_message":false)" +
                std::string(kTools) + "}");
}

TEST(ToolFields, AreNotForTheTemplateWhereNoneMayBeCalled) {
  for (const std::string& fields :
       {std::string(kTools) + R"(,"tool_choice":"none")", std::string(R"(,"tools":[])")}) {
    const CompletionRequest request = Parsed(fields);
    EXPECT_FALSE(request.tools.may_call());
    EXPECT_EQ(request.chat_variables.find("tools"), std::string::npos);
  }
}

TEST(ToolFields, ChooseOneToolByName) {
  const CompletionRequest request =
      Parsed(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(request.tools.choice, CallChoice::kRequired);
  ASSERT_EQ(request.tools.tools.size(), 1u);
  EXPECT_EQ(request.tools.tools[0].name, "g");
  EXPECT_FALSE(request.tools.is_parallel);
  EXPECT_NE(request.chat_variables.find("\"name\":\"f\""), std::string::npos);
  EXPECT_EQ(Parsed(std::string(kTools) + R"(,"tool_choice":"required")").tools.choice,
            CallChoice::kRequired);
}

TEST(ToolFields, AreRefusedByTheirPlace) {
  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f"}},)";
  ExpectBad(tool + "5]", "tools[1]", "tools[1] = 5 is not allowed: an object");
  ExpectBad(tool + R"({"type":"web_search"}])", "tools[1].type", R"("web_search")");
  ExpectBad(tool + R"({"type":"function"}])", "tools[1].function", "missing");
  ExpectBad(tool + R"({"type":"function","function":{"name":"a b"}}])", "tools[1].function.name",
            "1 to 64 letters, digits, _ and -");
  ExpectBad(tool + R"({"type":"function","function":{"name":"f"}}])", "tools[1].function.name",
            "a name that no tool before it has");
  ExpectBad(tool + R"({"type":"function","function":{"name":"g","parameters":[]}}])",
            "tools[1].function.parameters", "a JSON schema of an object");
  ExpectBad(tool + R"({"type":"function","function":{"name":"g","strict":1}}])",
            "tools[1].function.strict", "true or false");
  ExpectBad(R"(,"tools":"f")", "tools", "a list");
  ExpectBad(R"(,"tool_choice":"required")", "tools", "one tool or more with this tool_choice");
  ExpectBad(
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"array"}}}])",
      "tools[0].function.parameters.type", "\"object\"");
  ExpectBad(R"(,"tools":[{"type":"function","function":{}}])", "tools[0].function.name",
            "64 letters");
  ExpectBad(std::string(kTools) + R"(,"tool_choice":"f")", "tool_choice", "none, auto, required");
  ExpectBad(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})",
            "tool_choice.function.name", "the name of one of the tools");
  std::string many = R"(,"tools":[)";
  for (int i = 0; i < 129; ++i) {
    many += std::string(i == 0 ? "" : ",") + R"({"type":"function","function":{"name":"f)" +
            std::to_string(i) + "\"}}";
  }
  ExpectBad(many + "]", "tools", "at most 128 tools");
}

std::string Messages(const std::string& calls) {
  return R"({"messages":[{"role":"assistant","content":null,"tool_calls":)" + calls + "}]}";
}

TEST(ToolCallsOfMessages, HaveArgumentsThatAreObjects) {
  const auto variables = [](const std::string& arguments) {
    return ParseCompletionRequest(
               Api::kChat,
               Messages(R"([{"id":"i","type":"function","function":{"name":"f","arguments":)" +
                        arguments + "}}]"),
               {})
        .chat_variables;
  };
  const auto with = [](const std::string& arguments) {
    return R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"i",)"
           R"("type":"function","function":{"name":"f","arguments":)" +
           arguments + R"(}}]}],"add_generation_prompt":true,"continue_final_message":false})";
  };
  EXPECT_EQ(variables(R"("{\"b\": [1, \"é\"], \"a\": null}")"), with(R"({"b":[1,"é"],"a":null})"));
  EXPECT_EQ(variables(R"({"a":{}})"), with(R"({"a":{}})"));
  EXPECT_EQ(variables(R"("")"), with("{}"));
  EXPECT_EQ(variables("null"), with("{}"));
}

TEST(ToolCallsOfMessages, AreRefusedByTheirPlace) {
  const auto refused = [](const std::string& calls, const std::string& param,
                          const std::string& message) {
    test::ExpectRefused({Messages(calls), param, message}, [](std::string_view body) {
      ParseCompletionRequest(Api::kChat, body, {});
    });
  };
  const std::string place = "messages[0].tool_calls";
  refused("5", place, "a list");
  refused("[5]", place + "[0]", "an object");
  refused(R"([{"id":"i","function":{"arguments":"{}"}}])", place + "[0].function.name", "missing");
  refused(R"([{"id":"i","function":{"name":"f","arguments":"[1]"}}])",
          place + "[0].function.arguments", "an object, or its text");
  refused(R"([{"id":"i","function":{"name":"f","arguments":"{"}}])",
          place + "[0].function.arguments", "an object, or its text");
  refused(R"([{"id":5,"function":{"name":"f"}}])", place + "[0].id", "a text");
}

TEST(ToolCallsOfMessages, SpellNoSpecialTokenWhereTheServerRefusesIt) {
  const RequestLimits limits{.refused_texts = {"<|end|>"}};
  const server::ApiError error = test::RefusalOf([&] {
    ParseCompletionRequest(
        Api::kChat, Messages(R"([{"id":"i","function":{"name":"f","arguments":{"a":"<|end|>"}}}])"),
        {}, limits);
  });
  EXPECT_EQ(error.param, "messages[0].tool_calls");
  EXPECT_EQ(error.code, "special_token");
}

}  // namespace
}  // namespace sluice::server
