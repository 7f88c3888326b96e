// The fields that give an output its grammar: what each becomes, and every bad one with the words
// that refuse it.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/api/request/completion_request.h"
#include "tests/server/api/refused.h"

namespace sluice::server {
namespace {

constexpr Api kBoth[] = {Api::kCompletions, Api::kChat};

std::string Body(Api api, std::string_view fields) {
  const std::string_view begin =
      api == Api::kChat ? R"({"messages":[{"role":"user","content":"hi"}],)" : R"({"prompt":"x",)";
  return std::string(begin).append(fields).append("}");
}
CompletionRequest Parsed(std::string_view fields, Api api = Api::kChat,
                         const RequestLimits& limits = {}) {
  return ParseCompletionRequest(api, Body(api, fields), {}, limits);
}
void ExpectBad(std::string_view fields, const std::string& param, const std::string& in_message,
               const std::string& code = {}) {
  for (const Api api : kBoth) {
    test::ExpectRefused({Body(api, fields), param, in_message, code},
                        [&](std::string_view body) { ParseCompletionRequest(api, body, {}); });
  }
}

struct Good {
  const char* fields;
  GrammarKind kind;
  const char* text;
  const char* field;
};
constexpr GrammarKind kSchema = GrammarKind::kJsonSchema;

TEST(GrammarFields, BecomeOneGrammarByEveryServersNames) {
  const Good cases[] = {
      {R"("response_format":{"type":"json_object"})", GrammarKind::kJsonObject, "",
       "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
           "description":"d","schema":{"type":"object"}}})",
       kSchema, R"({"type":"object"})", "response_format.json_schema.schema"},
      {R"("response_format":{"json_schema":{"schema":{},"strict":null},"type":"json_schema"})",
       kSchema, "{}", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_object","schema":{"type":"array"}})", kSchema,
       R"({"type":"array"})", "response_format.schema"},
      {R"("response_format":{"type":"json_schema","schema":{"type":"array"}})", kSchema,
       R"({"type":"array"})", "response_format.schema"},
      {R"("response_format":{"type":"structural_tag","format":{"type":"any_text"}})",
       GrammarKind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"any_text"}})",
       "response_format"},
      {R"("response_format":{"type":"structural_tag","triggers":["<f"],
           "structures":[{"begin":"<f=a>","schema":{"type":"null"},"end":"</f>"}]})",
       GrammarKind::kStructuralTag,
       R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[)"
       R"({"type":"tag","begin":"<f=a>","content":{"type":"json_schema","json_schema":)"
       R"({"type":"null"}},"end":"</f>"}]}})",
       "response_format"},
      {R"("structured_outputs":{"json":{"type":"null"}})", kSchema, R"({"type":"null"})",
       "structured_outputs.json"},
      {R"("structured_outputs":{"json":"{ }","regex":null})", kSchema, "{ }",
       "structured_outputs.json"},
      {R"("structured_outputs":{"json_object":true})", GrammarKind::kJsonObject, "",
       "structured_outputs.json_object"},
      {R"("structured_outputs":{"json_object":false,"regex":"a+"})", GrammarKind::kRegex, "a+",
       "structured_outputs.regex"},
      {R"("structured_outputs":{"choice":["a","b\"c"]})", GrammarKind::kEbnf,
       R"(root ::= "a" | "b\"c")", "structured_outputs.choice"},
      {R"("structured_outputs":{"grammar":"root ::= \"a\""})", GrammarKind::kEbnf,
       R"(root ::= "a")", "structured_outputs.grammar"},
      {R"("structured_outputs":{"grammar":"start: \"a\""})", GrammarKind::kLark, R"(start: "a")",
       "structured_outputs.grammar"},
      {R"("structured_outputs":{"structural_tag":"{}"})", GrammarKind::kStructuralTag, "{}",
       "structured_outputs.structural_tag"},
      {R"("guided_json":{"type":"null"})", kSchema, R"({"type":"null"})", "guided_json"},
      {R"("guided_json":"true")", kSchema, "true", "guided_json"},
      {R"("guided_json":{})", kSchema, "{}", "guided_json"},
      {R"("guided_regex":"[ab]")", GrammarKind::kRegex, "[ab]", "guided_regex"},
      {R"("guided_choice":["x"])", GrammarKind::kEbnf, R"(root ::= "x")", "guided_choice"},
      {R"("guided_grammar":"start: \"a\"")", GrammarKind::kLark, R"(start: "a")", "guided_grammar"},
      {R"("regex":"a")", GrammarKind::kRegex, "a", "regex"},
      {R"("ebnf":"root ::= \"a\"")", GrammarKind::kEbnf, R"(root ::= "a")", "ebnf"},
      {R"("json_schema":"{\"type\":\"null\"}")", kSchema, R"({"type":"null"})", "json_schema"},
      {R"("json_schema":{})", kSchema, "{}", "json_schema"},
      {R"("structural_tag":{"type":"structural_tag"})", GrammarKind::kStructuralTag,
       R"({"type":"structural_tag"})", "structural_tag"},
      {R"("grammar":"root ::= \"a\"")", GrammarKind::kEbnf, R"(root ::= "a")", "grammar"},
  };
  for (const Api api : kBoth) {
    for (const Good& good : cases) {
      SCOPED_TRACE(good.fields);
      const CompletionRequest request = Parsed(good.fields, api);
      ASSERT_TRUE(request.grammar.has_value());
      EXPECT_EQ(request.grammar->kind, good.kind);
      EXPECT_EQ(request.grammar->text, good.text);
      EXPECT_EQ(request.grammar->options, GrammarOptions{});
      EXPECT_EQ(request.grammar_field, good.field);
      EXPECT_TRUE(request.unknown.empty());
    }
  }
}

TEST(GrammarFields, ThatAskForNothingGiveNone) {
  for (const char* const fields :
       {R"("response_format":null)", R"("response_format":{"type":"text"})",
        R"("response_format":{"type":"text","json_schema":null})", R"("structured_outputs":null)",
        R"("grammar":"")", R"("json_schema":null,"grammar":"")", R"("guided_regex":"")",
        R"("regex":null,"ebnf":null)", R"("guided_json":null,"guided_choice":null)"}) {
    SCOPED_TRACE(fields);
    EXPECT_EQ(Parsed(fields).grammar, std::nullopt);
    EXPECT_TRUE(Parsed(fields).unknown.empty());
  }
}

TEST(GrammarFields, KeepASchemaAsItWasWritten) {
  // The order of properties, numbers in their own characters, and texts that need escapes.
  const CompletionRequest request = Parsed(
      R"("guided_json":{ "properties" : {"z":{"type":"number","maximum":1.50e2}, "a" :
         {"const":"\u00e9\"\n"}}, "required":["a" , "z"], "additionalProperties":true})");
  EXPECT_EQ(request.grammar->text,
            R"({"properties":{"z":{"type":"number","maximum":1.50e2},"a":{"const":"é\"\n"}},)"
            R"("required":["a","z"],"additionalProperties":true})");
}

TEST(GrammarFields, OfVllmLeaveWhiteSpaceOut) {
  for (const char* const fields :
       {R"("structured_outputs":{"json":{},"disable_any_whitespace":true})",
        R"("structured_outputs":{"disable_any_whitespace":true,"json_object":true})"}) {
    EXPECT_EQ(Parsed(fields).grammar->options.max_whitespace, 0);
  }
  EXPECT_EQ(Parsed(R"("structured_outputs":{"json":{},"disable_any_whitespace":false,
                      "disable_additional_properties":true,"disable_fallback":true})")
                .grammar->options,
            GrammarOptions{});
  ExpectBad(R"("structured_outputs":{"json":{},"whitespace_pattern":"[ ]?"})",
            "structured_outputs.whitespace_pattern", "disable_any_whitespace",
            "unsupported_parameter");
}

TEST(GrammarFields, AreOneOrNone) {
  constexpr const char* kFormat = R"("response_format":{"type":"json_object"},)";
  const std::string format = kFormat;
  ExpectBad(format + R"("regex":"a")", "regex", "together with response_format");
  ExpectBad(format + R"("structured_outputs":{"json":{}})", "structured_outputs.json",
            "together with response_format");
  ExpectBad(R"("structured_outputs":{"json":{},"regex":"a"})", "structured_outputs.regex",
            "together with structured_outputs.json");
  ExpectBad(R"("guided_json":{},"guided_regex":"a")", "guided_regex", "together with guided_json");
  ExpectBad(R"("json_schema":{},"grammar":"root ::= \"a\"")", "grammar",
            "together with json_schema");
  EXPECT_TRUE(Parsed(R"("response_format":{"type":"text"},"regex":"a")").grammar.has_value());
}

TEST(GrammarFields, NameWhatIsWrongWithThem) {
  const auto format = [](std::string_view rest) {
    return std::string(R"("response_format":)").append(rest);
  };
  const char* const types = "text, json_object, json_schema or structural_tag";
  ExpectBad(format("{}"), "response_format.type", types);
  ExpectBad(format(R"("json")"), "response_format", "an object");
  ExpectBad(format("[]"), "response_format", "an object");
  ExpectBad(format("true"), "response_format", "an object");
  ExpectBad(format(R"({"type":"xml"})"), "response_format.type", "\"xml\"");
  ExpectBad(format(R"({"type":7})"), "response_format.type", "a text");
  ExpectBad(format(R"({"type":null})"), "response_format.type", types);
  ExpectBad(format(R"({"type":"json_schema"})"), "response_format.json_schema", "missing ");
  ExpectBad(format(R"({"type":"json_schema","json_schema":null})"), "response_format.json_schema",
            "missing ");
  ExpectBad(format(R"({"type":"json_schema","json_schema":"{}"})"), "response_format.json_schema",
            "an object");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"name":"a"}})"),
            "response_format.json_schema.schema", "missing ");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"schema":null}})"),
            "response_format.json_schema.schema", "missing ");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"schema":[1]}})"),
            "response_format.json_schema.schema", "a list");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"schema":true}})"),
            "response_format.json_schema.schema", "a JSON schema");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"schema":{},"strict":"yes"}})"),
            "response_format.json_schema.strict", "true or false");
  ExpectBad(format(R"({"type":"json_schema","json_schema":{"schema":{},"name":5}})"),
            "response_format.json_schema.name", "a text");
  ExpectBad(format(R"({"type":"json_object","schema":5})"), "response_format.schema", "5");
  ExpectBad(format(R"({"type":"structural_tag"})"), "response_format.format", "missing ");
  ExpectBad(format(R"({"type":"structural_tag","structures":[{}],"triggers":["a"]})"),
            "response_format.structures[0].begin", "missing ");
  ExpectBad(format(R"({"type":"structural_tag","structures":[{"begin":"a","end":"b"}]})"),
            "response_format.structures[0].schema", "missing ");
  ExpectBad(R"("structured_outputs":{})", "structured_outputs", "without a grammar");
  ExpectBad(R"("structured_outputs":{"json":null})", "structured_outputs", "without a grammar");
  ExpectBad(R"("structured_outputs":{"json_object":false})", "structured_outputs", "without a");
  ExpectBad(R"("structured_outputs":{"json_object":1})", "structured_outputs.json_object", "true");
  ExpectBad(R"("structured_outputs":[])", "structured_outputs", "an object");
  ExpectBad(R"("structured_outputs":{"choice":[]})", "structured_outputs.choice", "an empty list");
  ExpectBad(R"("structured_outputs":{"choice":["a",1]})", "structured_outputs.choice", "a text");
  ExpectBad(R"("structured_outputs":{"choice":"a"})", "structured_outputs.choice", "a list");
  ExpectBad(R"("structured_outputs":{"json":7})", "structured_outputs.json", "7");
  ExpectBad(R"("guided_json":[])", "guided_json", "a list");
  ExpectBad(R"("guided_regex":5)", "guided_regex", "a text");
  ExpectBad(R"("guided_choice":{})", "guided_choice", "a list");
  ExpectBad(R"("grammar":{})", "grammar", "a text");
  ExpectBad(R"("structural_tag":[])", "structural_tag", "an object");
}

TEST(GrammarFields, HaveABoundAndNoDepthBeyondIt) {
  const RequestLimits limits{.grammar_bytes = 20};
  EXPECT_TRUE(Parsed(R"("regex":"aaaaaaaaaaaaaaaaaaaa")", Api::kChat, limits).grammar.has_value());
  const auto refusal = [&](std::string_view fields) {
    return test::RefusalOf([&] { Parsed(fields, Api::kChat, limits); });
  };
  const ApiError regex = refusal(R"("regex":"aaaaaaaaaaaaaaaaaaaaa")");
  EXPECT_EQ(regex.param, "regex");
  EXPECT_EQ(regex.message, "regex = 21 bytes is not allowed: at most 20 bytes");
  EXPECT_EQ(refusal(R"("structured_outputs":{"json":{"description":"aaaaaaaaa"}})").param,
            "structured_outputs.json");
  EXPECT_EQ(refusal(R"("guided_choice":["aaaaaaaaaaaaaaaaaaa"])").param, "guided_choice");
  // The default is that of GrammarCompiler.
  std::string big = R"("guided_json":{"description":")";
  big.append(1 << 20, 'a').append("\"}");
  ExpectBad(big, "guided_json", "at most 262144 bytes");
  std::string deep = R"("guided_json":)";
  for (int i = 0; i < 100; ++i) deep.append("{\"items\":");
  ExpectBad(deep.append("true").append(100, '}'), "guided_json", "at most 64 levels",
            "json_parse_error");
}

TEST(GrammarFields, ListWhatTheyDoNotKnow) {
  constexpr const char* kFields = R"("response_format":{"type":"json_schema","foo":1,
      "json_schema":{"schema":{},"bar":[{}]}}, "guided_decoding_backend":"x")";
  EXPECT_EQ(Parsed(kFields).unknown,
            (std::vector<std::string>{"response_format.foo", "response_format.json_schema.bar"}));
  const RequestLimits strict{.refuses_unknown = true};
  const ApiError error = test::RefusalOf([&] { Parsed(kFields, Api::kChat, strict); });
  EXPECT_EQ(error.param, "response_format.foo");
  const ApiError near =
      test::RefusalOf([&] { Parsed(R"("respons_format":{})", Api::kChat, strict); });
  EXPECT_NE(near.message.find("did you mean response_format?"), std::string::npos) << near.message;
}

}  // namespace
}  // namespace sluice::server
