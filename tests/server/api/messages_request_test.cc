// Anthropic's messages as a chat's: what the template gets, and what is refused by its path.
#include <gtest/gtest.h>

#include "server/api/request/completion_request.h"
#include "tests/server/api/parsed_json.h"
#include "tests/server/api/refused.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

std::string Body(std::string_view messages, std::string_view fields = "") {
  return std::string(R"({"max_tokens":8,"messages":)").append(messages).append(fields).append("}");
}
CompletionRequest Parsed(std::string_view messages, std::string_view fields = "") {
  return ParseCompletionRequest(Api::kMessages, Body(messages, fields), {});
}
std::string Messages(std::string_view messages, std::string_view fields = "") {
  return ParsedJson(Parsed(messages, fields).chat_variables).Json("/messages");
}
void ExpectBad(std::string_view messages, const std::string& param, const std::string& in_message,
               std::string_view fields = "", const std::string& code = {}) {
  test::ExpectRefused({Body(messages, fields), param, in_message, code}, [](std::string_view body) {
    ParseCompletionRequest(Api::kMessages, body, {});
  });
}
void ExpectBadField(const std::string& field, const std::string& param,
                    const std::string& in_message, const std::string& code = {}) {
  ExpectBad(R"([{"role":"user","content":"a"}])", param, in_message, "," + field, code);
}

constexpr std::string_view kOne = R"([{"role":"user","content":"a"}])";

TEST(MessagesRequest, ATurnWithToolsReachesTheTemplate) {
  EXPECT_EQ(Messages(R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{}},
                                             {"text":"b","type":"text"}]},
        {"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"s"},
          {"type":"redacted_thinking","data":"x"},{"type":"text","text":"c"},
          {"type":"tool_use","id":"i","name":"f","input":{"z":1,"a":[2]}}]},
        {"role":"user","content":[
          {"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"d"},
                                                              {"type":"text","text":"e"}]},
          {"type":"text","text":"g"}]}])",
                     R"(,"system":[{"type":"text","text":"s"},{"type":"text","text":"t"}])"),
            R"([{"role":"system","content":"s\nt"},{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"c","reasoning_content":"r","tool_calls":[{"id":"i",)"
            R"("type":"function","function":{"name":"f","arguments":{"z":1,"a":[2]}}}]},)"
            R"({"role":"tool","content":"d\ne","tool_call_id":"i","name":"f"},)"
            R"({"role":"user","content":"g"}])");
}

TEST(MessagesRequest, TheOrderOfFieldsSaysNothing) {
  const std::string_view messages =
      R"([{"content":[{"input":{},"name":"f","id":"i","type":"tool_use"}],"role":"assistant"},
          {"content":[{"content":[{"text":"d","type":"text"}],"tool_use_id":"i",
                       "type":"tool_result"}],"role":"user"},
          {"content":[{"content":"e","tool_use_id":"i","type":"tool_result"}],"role":"user"},
          {"content":[{"tool_use_id":"i","type":"tool_result"}],"role":"user"}])";
  EXPECT_EQ(Messages(messages),
            R"([{"role":"assistant","content":"","tool_calls":[{"id":"i","type":"function",)"
            R"("function":{"name":"f","arguments":{}}}]},)"
            R"({"role":"tool","content":"d","tool_call_id":"i","name":"f"},)"
            R"({"role":"tool","content":"e","tool_call_id":"i","name":"f"},)"
            R"({"role":"tool","content":"","tool_call_id":"i","name":"f"}])");
}

TEST(MessagesRequest, MessagesOfOneRoleInARowAreOne) {
  EXPECT_EQ(Messages(R"([{"role":"user","content":"a"},{"role":"user","content":[]},
                         {"role":"user","content":[{"type":"text","text":"b"}]},
                         {"role":"assistant","content":""},{"role":"user","content":"c"}])"),
            R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":""},)"
            R"({"role":"user","content":"c"}])");
}

TEST(MessagesRequest, TheModelGoesOnWithALastMessageOfTheAssistant) {
  const CompletionRequest request =
      Parsed(R"([{"role":"user","content":"a"},{"role":"assistant","content":"Well"}])");
  EXPECT_EQ(request.final_message, "Well");
  EXPECT_NE(request.chat_variables.find(R"("add_generation_prompt":false)"), std::string::npos);
  EXPECT_EQ(Parsed(kOne).final_message, std::nullopt);
  EXPECT_EQ(Parsed(R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f",
                       "input":{}}]}])")
                .final_message,
            std::nullopt);
}

// It begins nothing: the model writes a turn of its own, as without it.
TEST(MessagesRequest, ALastMessageOfTheAssistantWithoutContentIsLeftOut) {
  const std::string one = Parsed(kOne).chat_variables;
  for (const char* const content : {R"("")", "[]", R"([{"type":"text","text":""}])",
                                    R"([{"type":"redacted_thinking","data":"x"}])"}) {
    SCOPED_TRACE(content);
    const CompletionRequest request =
        Parsed(R"([{"role":"user","content":"a"},{"role":"assistant","content":)" +
               std::string(content) + "}]");
    EXPECT_EQ(request.final_message, std::nullopt);
    EXPECT_EQ(request.chat_variables, one);
  }
  ExpectBad(R"([{"role":"assistant","content":""}])", "messages", "one of a user");
}

TEST(MessagesRequest, NoModelGoesOnWithThinking) {
  const auto last = [](std::string_view blocks) {
    return R"([{"role":"user","content":"a"},{"role":"assistant","content":[)" +
           std::string(blocks) + "]}]";
  };
  const std::string thinking = R"({"type":"thinking","thinking":"r"})";
  const std::string text = R"({"type":"text","text":"c"})";
  for (const std::string& blocks :
       {thinking, thinking + R"(,{"type":"text","text":""})", text + "," + thinking}) {
    ExpectBad(last(blocks), "messages", "ends in thinking");
  }
  EXPECT_EQ(Parsed(last(thinking + "," + text)).final_message, "c");
}

TEST(MessagesRequest, AResultThatIsAnErrorSaysSo) {
  const auto result = [](std::string_view members) {
    const std::string messages = Messages(
        R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"i",)" +
        std::string(members) + "}]}]");
    return ParsedJson(messages).Text("/1/content");
  };
  EXPECT_EQ(result(R"("is_error":true,"content":"no such file")"), "Error: no such file");
  EXPECT_EQ(result(R"("content":[{"type":"text","text":"late"}],"is_error":true)"), "Error: late");
  EXPECT_EQ(result(R"("is_error":true)"), "Error");
  EXPECT_EQ(result(R"("is_error":true,"content":"Error 5")"), "Error 5");
  EXPECT_EQ(result(R"("is_error":false,"content":"fine")"), "fine");
}

TEST(MessagesRequest, HasTheFieldsOfAChatByItsOwnNames) {
  const CompletionRequest request = Parsed(
      kOne,
      R"(,"model":"m","stop_sequences":["x","y"],"temperature":0.5,"top_p":0.5,"top_k":7,"seed":3,
         "metadata":{"user_id":"u"},"stream":true,"min_p":0.25,"service_tier":"auto","foo":1,
         "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}})");
  EXPECT_EQ(request.max_tokens, 8);
  EXPECT_EQ(request.text.stops, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(request.params.temperature, 0.5f);
  EXPECT_EQ(request.params.top_p, 0.5f);
  EXPECT_EQ(request.params.top_k, 7);
  EXPECT_EQ(request.params.min_p, 0.25f);
  EXPECT_EQ(request.params.seed, 3u);
  EXPECT_TRUE(request.streams);
  EXPECT_EQ(request.unknown, std::vector<std::string>{"foo"});
  EXPECT_EQ(request.grammar->text, R"({"type":"object"})");
  EXPECT_EQ(request.grammar_field, "output_config.format.schema");
  EXPECT_EQ(ParsedJson(request.chat_variables).Text("/reasoning_effort"), "low");
}

TEST(MessagesRequest, ToolsAreThoseOfAChat) {
  const CompletionRequest request =
      Parsed(kOne,
             R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object",
                           "properties":{"a":{"type":"integer"}}},"cache_control":{}},
                          {"type":"custom","name":"g","input_schema":{"type":"object"},
                           "input_examples":[{}]}],
                "tool_choice":{"type":"auto","disable_parallel_tool_use":true})");
  EXPECT_EQ(ParsedJson(request.chat_variables).Json("/tools"),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"a":{"type":"integer"}}}}},{"type":"function",)"
            R"("function":{"name":"g","parameters":{"type":"object"}}}])");
  EXPECT_FALSE(request.tools.is_parallel);
  EXPECT_EQ(request.unknown, std::vector<std::string>{"tools[].input_examples"});
  const auto choice = [](std::string_view json) {
    return Parsed(kOne, std::string(R"(,"tools":[{"name":"f"},{"name":"g"}],"tool_choice":)") +
                            std::string(json))
        .tools;
  };
  EXPECT_EQ(choice(R"({"type":"any"})").choice, CallChoice::kRequired);
  EXPECT_EQ(choice(R"({"type":"any"})").tools.size(), 2u);
  EXPECT_FALSE(choice(R"({"type":"none"})").may_call());
  EXPECT_EQ(choice(R"({"type":"tool","name":"g"})").tools.at(0).name, "g");
}

TEST(MessagesRequest, ThinkingIsWhatTemplatesRead) {
  const auto variables = [](std::string_view fields) {
    return Parsed(kOne, fields).chat_variables;
  };
  const std::string on = variables(R"(,"thinking":{"type":"enabled","budget_tokens":1024})");
  EXPECT_NE(on.find(R"("enable_thinking":true,"thinking":true)"), std::string::npos) << on;
  const CompletionRequest off = Parsed(kOne, R"(,"thinking":{"type":"disabled"})");
  EXPECT_NE(off.chat_variables.find(R"("enable_thinking":false)"), std::string::npos);
  EXPECT_FALSE(off.tools.includes_reasoning);
  EXPECT_EQ(variables(R"(,"thinking":{"type":"adaptive"})").find("thinking"), std::string::npos);
  const std::string_view budget = R"(,"thinking":{"type":"enabled","budget_tokens":1024})";
  EXPECT_EQ(Parsed(kOne, budget).thinking_tokens, 1024);
  EXPECT_TRUE(
      Parsed(kOne, budget).thinking_field.empty());  // no fault where a model has no reasoning
  EXPECT_FALSE(Parsed(kOne, R"(,"thinking":{"type":"disabled","budget_tokens":9})")
                   .thinking_tokens.has_value());
  // The template's own variables count more.
  const std::string kept = variables(R"(,"thinking":{"type":"enabled","budget_tokens":9},)"
                                     R"("chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(kept.find(R"("enable_thinking":true)"), std::string::npos) << kept;
}

TEST(MessagesRequest, NamesThePathOfWhatIsWrong) {
  ExpectBad("[]", "messages", "an empty list");
  ExpectBad("\"a\"", "messages", "a list of one message or more");
  ExpectBad("[1]", "messages[0]", "an object");
  ExpectBad(R"([{"content":"a"}])", "messages[0].role", "user or assistant");
  ExpectBad(R"([{"role":"user"}])", "messages[0].content", "a list of blocks");
  ExpectBad(R"([{"role":"user","content":null}])", "messages[0].content", "a list of blocks");
  ExpectBad(R"([{"role":"user","content":7}])", "messages[0].content", "a list of blocks");
  ExpectBad(R"([{"role":"system","content":"a"}])", "messages[0].role", "the field system");
  ExpectBad(R"([{"role":7,"content":"a"}])", "messages[0].role", "a text");
  ExpectBad(R"([{"role":"user","content":["a"]}])", "messages[0].content[0]", "an object");
  ExpectBad(R"([{"role":"user","content":[{}]}])", "messages[0].content[0].type", "the type");
  ExpectBad(R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text", "");
  ExpectBad(R"([{"role":"user","content":[{"type":"text","text":1}]}])",
            "messages[0].content[0].text", "a text");
  ExpectBad(R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},
                {"type":"tool_use","id":"i","name":"f","input":{}}]}])",
            "messages[1].content[1].type", "of the role user");
  ExpectBad(R"([{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"i"}]}])",
            "messages[0].content[0].type", "of the role assistant");
  for (const std::string member : {"id", "name", "input"}) {
    const std::string others = member == "id"     ? R"("name":"f","input":{})"
                               : member == "name" ? R"("id":"i","input":{})"
                                                  : R"("id":"i","name":"f")";
    ExpectBad(R"([{"role":"assistant","content":[{"type":"tool_use",)" + others + "}]}]",
              "messages[0].content[0]." + member, "");
  }
  ExpectBad(
      R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":"{}"}]}])",
      "messages[0].content[0].input", "an object");
}

TEST(MessagesRequest, BoundsTheBlocksOfAMessage) {
  const auto blocks = [](int count) {
    std::string list;
    for (int at = 0; at < count; ++at) {
      list.append(at == 0 ? "" : ",").append(R"({"type":"text","text":"a"})");
    }
    return R"([{"role":"user","content":[)" + list + "]}]";
  };
  Parsed(blocks(4096));
  ExpectBad(blocks(4097), "messages[0].content", "at most 4096 blocks");
}

TEST(MessagesRequest, RefusesAResultWithoutItsCall) {
  const std::string_view result =
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"j","content":"d"}]})";
  ExpectBad("[" + std::string(result) + "]", "messages[0].content[0].tool_use_id",
            "the id of a call before it");
  ExpectBad(
      R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f","input":{}}]},)" +
          std::string(result) + "]",
      "messages[1].content[0].tool_use_id", "\"j\"");
  ExpectBad(R"([{"role":"user","content":[{"type":"tool_result"}]}])",
            "messages[0].content[0].tool_use_id", "");
}

TEST(MessagesRequest, RefusesBlocksThatItCannotReadByName) {
  const std::string code = "unsupported_parameter";
  for (const std::string type : {"image", "document", "server_tool_use", "nothing"}) {
    const std::string block = R"({"type":")" + type + R"(","source":{"data":"x"}})";
    ExpectBad(R"([{"role":"user","content":[)" + block + "]}]", "messages[0].content[0].type",
              "\"" + type + "\" is not supported", "", code);
    ExpectBadField(R"("system":[)" + block + "]", "system[0].type", type, code);
    ExpectBad(R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f",
                   "input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i",
                   "content":[)" +
                  block + "]}]}]",
              "messages[1].content[0].content[0].type", type, "", code);
  }
  ExpectBadField(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools[0].type",
                 "the server runs no tools", code);
  ExpectBadField(R"("mcp_servers":[{}])", "mcp_servers", "not supported", code);
  ExpectBadField(R"("n":2)", "n", "one message", code);
  ExpectBadField(R"("stop":["a"])", "stop", "stop_sequences does it", code);
  ExpectBadField(R"("logprobs":true)", "logprobs", "/v1/chat/completions", code);
}

TEST(MessagesRequest, NamesFieldsThatAreWrong) {
  ExpectBadField(R"("tools":[{"input_schema":{}}])", "tools[0].name", "letters");
  ExpectBadField(R"("tools":[{"name":"f g"}])", "tools[0].name", "f g");
  ExpectBadField(R"("tools":[{"name":"f","input_schema":[]}])", "tools[0].input_schema", "schema");
  ExpectBadField(R"("tools":[{"name":"f","input_schema":{"type":"array"}}])",
                 "tools[0].input_schema.type", "object");
  ExpectBadField(R"("tools":[{"name":"f"}],"tool_choice":"auto")", "tool_choice", "an object");
  ExpectBadField(R"("tool_choice":{})", "tool_choice.type", "auto, any, tool or none");
  ExpectBadField(R"("tool_choice":{"type":"some"})", "tool_choice.type", "\"some\"");
  ExpectBadField(R"("tool_choice":{"type":"any"})", "tools", "one tool or more");
  ExpectBadField(R"("tools":[{"name":"f"}],"tool_choice":{"type":"tool","name":"g"})",
                 "tool_choice.name", "the name of one of the tools");
  ExpectBadField(R"("tool_choice":{"type":"tool"})", "tool_choice.name", "the name of a tool");
  ExpectBadField(R"("thinking":{"type":"on"})", "thinking.type", "enabled, adaptive or disabled");
  ExpectBadField(R"("thinking":{"type":"enabled","budget_tokens":0})", "thinking.budget_tokens",
                 "");
  ExpectBadField(R"("thinking":{"type":"enabled"})", "thinking.budget_tokens", "1 or more");
  ExpectBadField(R"("output_config":{"format":{"type":"json_schema"}})",
                 "output_config.format.schema", "a JSON schema");
  ExpectBadField(R"("output_config":{"effort":3})", "output_config.effort", "a text");
  ExpectBadField(R"("temperature":3)", "temperature", "[0, 2]");
  ExpectBadField(R"("top_k":-3)", "top_k", "");
  test::ExpectRefused(
      {R"({"messages":[{"role":"user","content":"a"}]})", "max_tokens", "1 or more"},
      [](std::string_view body) { ParseCompletionRequest(Api::kMessages, body, {}); });
  const ApiError zero = test::RefusalOf([] {
    ParseCompletionRequest(Api::kCountTokens,
                           R"({"max_tokens":0,"messages":[{"role":"user","content":"a"}]})", {});
  });
  EXPECT_EQ(zero.message, "max_tokens = 0 is not allowed: 1 or more");
  EXPECT_EQ(ParseCompletionRequest(Api::kCountTokens,
                                   R"({"messages":[{"role":"user","content":""}]})", {})
                .max_tokens,
            std::nullopt);
}

TEST(MessagesRequest, RefusesSpecialTokensInEveryText) {
  const RequestLimits limits{.refused_texts = {"<end>"}};
  const auto refused = [&](const std::string& messages, const std::string& fields,
                           const std::string& param) {
    test::ExpectRefused(
        {Body(messages, fields), param, "<end>", "special_token"},
        [&](std::string_view body) { ParseCompletionRequest(Api::kMessages, body, {}, limits); });
  };
  refused(R"([{"role":"user","content":"<end>"}])", "", "messages[0].content");
  refused(R"([{"role":"user","content":[{"type":"text","text":"a<end>"}]}])", "",
          "messages[0].content[0].text");
  refused(std::string(kOne), R"(,"system":"<end>")", "system");
  const std::string call = R"([{"role":"assistant","content":[{"type":"thinking","thinking":")";
  refused(call + R"(<end>"}]}])", "", "messages[0].content[0].thinking");
  refused(call + R"("},{"type":"tool_use","id":"i","name":"f","input":{"a":"<end>"}}]}])", "",
          "messages[0].content[1]");
  refused(call + R"("},{"type":"tool_use","id":"i","name":"f","input":{}}]},{"role":"user",
                     "content":[{"type":"tool_result","tool_use_id":"i","content":"<end>"}]}])",
          "", "messages[1].content[0].content");
}

// As many blocks as a body may have, and nesting without an end: read once, and not by recursion.
TEST(MessagesRequest, ReadsHostileBodiesInOneGo) {
  std::string blocks = R"({"type":"text","text":"a"})";
  for (int i = 0; i < 4'000; ++i) blocks += R"(,{"type":"text","text":"a"})";
  const std::string turn = R"({"role":"user","content":[)" + blocks + "]}";
  std::string turns = turn;
  for (int i = 0; i < 9; ++i) turns += "," + turn;
  const CompletionRequest request = Parsed("[" + turns + "]");
  EXPECT_GT(request.chat_variables.size(), 80'000u);

  std::string calls = R"({"type":"tool_use","id":"0","name":"f","input":{}})";
  std::string results = R"({"type":"tool_result","tool_use_id":"0"})";
  for (int i = 1; i < 4'096; ++i) {
    calls += R"(,{"type":"tool_use","id":")" + std::to_string(i) + R"(","name":"f","input":{}})";
    results += R"(,{"type":"tool_result","tool_use_id":")" + std::to_string(i) + "\"}";
  }
  Parsed(R"([{"role":"assistant","content":[)" + calls + R"(]},{"role":"user","content":[)" +
         results + "]}]");

  const auto nested = [](std::string_view open, std::string_view close, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += open;
    for (size_t i = 0; i < times; ++i) text += close;
    return text;
  };
  for (const size_t depth : {size_t{70}, size_t{900}, size_t{100'000}}) {
    const std::string result =
        nested(R"({"type":"tool_result","tool_use_id":"i","content":[)", "]}", depth);
    const auto is_refused = [](const std::string& body) {
      EXPECT_EQ(test::RefusalOf([&] { ParseCompletionRequest(Api::kMessages, body, {}); }).status,
                400);
    };
    is_refused(Body(R"([{"role":"user","content":[)" + result + "]}]"));
    is_refused(Body(nested("[", "]", depth)));
    is_refused(Body(R"([{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"f",
                         "input":{"a":)" +
                    nested("[", "]", depth) + "}}]}]"));
    is_refused(Body(R"([{"role":"user","content":[{"content":)" + nested("[", "]", depth) +
                    R"(,"type":"tool_result"}]}])"));
  }
}

}  // namespace
}  // namespace sluice::server
