// OpenAI's responses as chats: what the template gets, what is refused, and what is repeated.
#include <gtest/gtest.h>

#include "server/api/request/completion_request.h"
#include "tests/server/api/parsed_json.h"
#include "tests/server/api/refused.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

std::string Body(std::string_view input, std::string_view fields = "") {
  return std::string(R"({"input":)").append(input).append(fields).append("}");
}
CompletionRequest Parsed(std::string_view input, std::string_view fields = "") {
  return ParseCompletionRequest(Api::kResponses, Body(input, fields), {});
}
std::string Messages(std::string_view input, std::string_view fields = "") {
  return ParsedJson(Parsed(input, fields).chat_variables).Json("/messages");
}
void ExpectBad(std::string_view input, const std::string& param, const std::string& in_message,
               std::string_view fields = "", const std::string& code = {}) {
  test::ExpectRefused({Body(input, fields), param, in_message, code}, [](std::string_view body) {
    ParseCompletionRequest(Api::kResponses, body, {});
  });
}
void ExpectUnsupported(const std::string& field, const std::string& param,
                       const std::string& in_message) {
  ExpectBad("\"a\"", param, in_message, "," + field, "unsupported_parameter");
}
std::string Echo(const CompletionRequest& request) {
  return "{" + request.echo_members + "\"_\":0}";
}

TEST(ResponsesRequest, ATextIsAUsers) {
  EXPECT_EQ(Messages("\"a\""), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(Messages("\"a\"", R"(,"instructions":"s")"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"}])");
}

TEST(ResponsesRequest, ItemsReachTheTemplate) {
  EXPECT_EQ(Messages(R"([{"role":"developer","content":"d"},{"role":"user","content":"a"},
        {"type":"message","role":"user","content":[{"type":"input_text","text":"b"},
                                                   {"type":"input_text","text":"c"}]},
        {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"r"}]},
        {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[
          {"type":"output_text","text":"e","annotations":[],"logprobs":[]}]},
        {"type":"function_call","id":"fc_1","call_id":"i","name":"f","arguments":"{\"a\": 1}"},
        {"type":"function_call","call_id":"j","name":"g","arguments":""},
        {"type":"function_call_output","call_id":"i","output":"one"},
        {"type":"function_call_output","call_id":"j","output":[{"type":"input_text","text":"two"}]},
        {"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"q"}]},
        {"role":"assistant","content":"h"},{"role":"user","content":"k"}])"),
            R"([{"role":"developer","content":"d"},{"role":"user","content":"a"},)"
            R"({"role":"user","content":"b\nc"},)"
            R"({"role":"assistant","content":"e","reasoning_content":"r","tool_calls":[{"id":"i",)"
            R"("type":"function","function":{"name":"f","arguments":{"a":1}}},{"id":"j","type":)"
            R"("function","function":{"name":"g","arguments":{}}}]},)"
            R"({"role":"tool","content":"one","tool_call_id":"i","name":"f"},)"
            R"({"role":"tool","content":"two","tool_call_id":"j","name":"g"},)"
            R"({"role":"assistant","content":"h","reasoning_content":"q"},)"
            R"({"role":"user","content":"k"}])");
}

TEST(ResponsesRequest, HasTheFieldsOfAChatByItsOwnNames) {
  const CompletionRequest request = Parsed(
      "\"a\"",
      R"(,"max_output_tokens":9,"temperature":0.5,"top_p":0.75,"stream":true,"store":true,"user":"u",
         "stream_options":{"include_obfuscation":true},"include":["reasoning.encrypted_content"],
         "reasoning":{"effort":"high","summary":"auto"},"truncation":"disabled","background":false,
         "previous_response_id":null,"prompt_cache_key":"k","metadata":{"a":"b"},"foo":1,
         "parallel_tool_calls":false,"tool_choice":{"type":"function","name":"f"},
         "tools":[{"type":"function","name":"f","description":"d","strict":true,
                   "parameters":{"type":"object"}}],
         "text":{"format":{"type":"json_schema","name":"n","strict":true,
                           "schema":{"type":"object"}}})");
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.streams);
  EXPECT_EQ(request.unknown, std::vector<std::string>{"foo"});
  EXPECT_EQ(request.grammar_field, "text.format.schema");
  EXPECT_EQ(request.tools.named, "f");
  EXPECT_TRUE(request.tools.tools.at(0).is_strict);
  const ParsedJson variables(request.chat_variables);
  EXPECT_EQ(variables.Text("/reasoning_effort"), "high");
  EXPECT_EQ(variables.Json("/tools"),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object"}}}])");
  EXPECT_EQ(
      Echo(request),
      R"({"instructions":null,"metadata":{"a":"b"},"reasoning":{"effort":"high","summary":"auto"},)"
      R"("text":{"format":{"type":"json_schema","name":"n","strict":true,)"
      R"("schema":{"type":"object"}}},"tools":[{"type":"function","name":"f","description":"d",)"
      R"("strict":true,"parameters":{"type":"object"}}],)"
      R"("tool_choice":{"type":"function","name":"f"},"max_output_tokens":9,)"
      R"("parallel_tool_calls":false,"previous_response_id":null,"store":false,)"
      R"("truncation":"disabled","temperature":0.5,"top_p":0.75,"_":0})");
}

TEST(ResponsesRequest, RepeatsDefaultsWhereTheRequestHasNothing) {
  const ParsedJson echo(Echo(Parsed("\"a\"", R"(,"instructions":"q\"","tool_choice":"none")")));
  EXPECT_EQ(echo.Text("/instructions"), "q\"");
  EXPECT_EQ(echo.Json("/tools"), "[]");
  EXPECT_EQ(echo.Text("/tool_choice"), "none");
  EXPECT_EQ(echo.Json("/max_output_tokens"), "null");
  EXPECT_EQ(echo.Text("/text/format/type"), "text");
}

TEST(ResponsesRequest, EffortIsWhatTemplatesRead) {
  const auto variables = [](std::string_view fields) {
    return Parsed("\"a\"", fields).chat_variables;
  };
  EXPECT_NE(variables(R"(,"reasoning":{"effort":"none"})").find(R"("enable_thinking":false)"),
            std::string::npos);
  EXPECT_EQ(variables(R"(,"reasoning":{"effort":null})").find("effort"), std::string::npos);
}

TEST(ResponsesRequest, ListsMembersOfToolsThatItLeavesOut) {
  const CompletionRequest request =
      Parsed("\"a\"",
             R"(,"tools":[{"type":"function","name":"f","strict":false,"description":"d","extra":1},
                  {"type":"function","name":"g","parameters":{},"extra":2,"defer_loading":null}])");
  EXPECT_EQ(request.unknown, std::vector<std::string>{"tools[].extra"});
}

TEST(ResponsesRequest, NamesThePathOfWhatIsWrong) {
  ExpectBad("[]", "input", "an empty list");
  ExpectBad("7", "input", "a text or a list");
  ExpectBad("[7]", "input[0]", "an object");
  ExpectBad("[{}]", "input[0].type", "the type of the item");
  ExpectBad(R"([{"type":"message","content":"a"}])", "input[0].role", "");
  ExpectBad(R"([{"role":"tool","content":"a"}])", "input[0].role", "\"tool\"");
  ExpectBad(R"([{"role":"user"}])", "input[0].content", "a text or a list of parts");
  ExpectBad(R"([{"role":"user","content":[{"text":"a"}]}])", "input[0].content[0].type", "");
  ExpectBad(R"([{"role":"user","content":[{"type":"input_text"}]}])", "input[0].content[0].text",
            "a text");
  ExpectBad(R"([{"role":"user","content":"a"},{"type":"function_call","call_id":"i","name":"f",
                 "arguments":"{"}])",
            "input[1].arguments", "an object");
  ExpectBad(R"([{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id", "");
  ExpectBad(R"([{"type":"function_call","call_id":"i","arguments":"{}"}])", "input[0].name", "");
  ExpectBad(R"([{"type":"function_call_output","call_id":"i","output":"a"}])", "input[0].call_id",
            "the id of a call before it");
  ExpectBad(R"([{"type":"function_call","call_id":"i","name":"f"},
                {"type":"function_call_output","call_id":"i"}])",
            "input[1].output", "");
  test::ExpectRefused({"{}", "input", "a text or a list"}, [](std::string_view body) {
    ParseCompletionRequest(Api::kResponses, body, {});
  });
  ExpectBad("\"a\"", "max_output_tokens", "1 or more", R"(,"max_output_tokens":0)");
  ExpectBad("\"a\"", "min_tokens", "at most max_output_tokens",
            R"(,"max_output_tokens":1,"min_tokens":2)");
  ExpectBad("\"a\"", "tools", "a list", R"(,"tools":{})");
  ExpectBad("\"a\"", "tools[0].parameters", "schema",
            R"(,"tools":[{"type":"function","name":"f","parameters":1}])");
  ExpectBad(
      "\"a\"", "tool_choice.name", "one of the tools",
      R"(,"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"})");
  for (const char* const choice : {R"("some")", R"("any")", "true", "[]"}) {
    ExpectBad("\"a\"", "tool_choice", R"(none, auto, required or {"type": "function", "name")",
              std::string(R"(,"tools":[{"type":"function","name":"f"}],"tool_choice":)") + choice);
  }
  ExpectBad("\"a\"", "text.format.schema", "a JSON schema",
            R"(,"text":{"format":{"type":"json_schema","name":"n"}})");
  ExpectBad("\"a\"", "text.format.type", "json_object", R"(,"text":{"format":{"type":"xml"}})");
  ExpectBad("\"a\"", "reasoning.effort", "a text", R"(,"reasoning":{"effort":1})");
  ExpectBad("\"a\"", "metadata", "an object", R"(,"metadata":"x")");
  ExpectBad("\"a\"", "metadata.a", "a text", R"(,"metadata":{"a":[1,{}]})");
  const auto metadata = [](const std::string& name, size_t bytes, int count) {
    std::string all;
    for (int at = 0; at < count; ++at) {
      all += (at == 0 ? "\"" : ",\"") + name + std::to_string(at) + "\":\"" +
             std::string(bytes, 'a') + "\"";
    }
    return R"(,"metadata":{)" + all + "}";
  };
  Parsed("\"a\"", metadata("a", 512, 16));
  ExpectBad("\"a\"", "metadata", "at most 16 texts", metadata("a", 1, 17));
  ExpectBad("\"a\"", "metadata.a0", "at most 512 bytes", metadata("a", 513, 1));
  ExpectBad("\"a\"", "metadata", "at most 64 bytes", metadata(std::string(64, 'n'), 1, 1));
}

TEST(ResponsesRequest, RefusesByNameWhatWouldNeedAStore) {
  ExpectUnsupported(R"("previous_response_id":"resp_1")", "previous_response_id",
                    "nothing is stored");
  ExpectUnsupported(R"("conversation":{"id":"c"})", "conversation", "nothing is stored");
  ExpectUnsupported(R"("background":true)", "background", "nothing is stored");
  ExpectUnsupported(R"("prompt":{"id":"p"})", "prompt", "instructions");
  ExpectBad(R"([{"type":"item_reference","id":"x"}])", "input[0].type", "item_reference", "",
            "unsupported_parameter");
}

TEST(ResponsesRequest, RefusesByNameWhatItCannotDo) {
  for (const std::string type : {"input_image", "input_file", "context"}) {
    ExpectBad(R"([{"role":"user","content":[{"type":")" + type + R"(","image_url":"x"}]}])",
              "input[0].content[0].type", type, "", "unsupported_parameter");
  }
  ExpectBad(R"([{"type":"web_search_call","id":"x"}])", "input[0].type", "web_search_call", "",
            "unsupported_parameter");
  ExpectUnsupported(R"("tools":[{"type":"web_search"}])", "tools[0].type", "runs no tools");
  ExpectUnsupported(R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.type", "function");
  ExpectUnsupported(R"("truncation":"auto")", "truncation", "truncate_prompt_tokens");
  ExpectUnsupported(R"("include":["message.output_text.logprobs"])", "include[0]", "logprobs");
  ExpectUnsupported(R"("top_logprobs":3)", "top_logprobs", "/v1/chat/completions");
  ExpectUnsupported(R"("max_tokens":3)", "max_tokens", "max_output_tokens does it");
  ExpectUnsupported(R"("text":{"verbosity":"low"})", "text.verbosity", "the prompt may say");
}

// As many items as a body may have, and nesting without an end.
TEST(ResponsesRequest, ReadsHostileBodiesInOneGo) {
  std::string items = R"({"type":"function_call","call_id":"0","name":"f"})";
  for (int i = 1; i < 10'000; ++i) {
    items += R"(,{"type":"function_call","call_id":")" + std::to_string(i) + R"(","name":"f"})";
  }
  EXPECT_GT(Parsed("[" + items + "]").chat_variables.size(), 500'000u);
  for (const size_t depth : {size_t{70}, size_t{900}, size_t{100'000}}) {
    const std::string nested = std::string(depth, '[') + std::string(depth, ']');
    for (const std::string& body :
         {Body(nested), Body(R"([{"role":"user","content":)" + nested + "}]"),
          Body(R"([{"type":"x","foo":)" + nested + "}]"),
          Body("\"a\"", R"(,"text":{"format":)" + nested + "}"),
          Body("\"a\"", ",\"tools\":" + nested),
          Body("\"a\"", R"(,"metadata":{"a":)" + nested + "}")}) {
      EXPECT_EQ(test::RefusalOf([&] { ParseCompletionRequest(Api::kResponses, body, {}); }).status,
                400)
          << body.substr(0, 60);
    }
  }
}

}  // namespace
}  // namespace sluice::server
