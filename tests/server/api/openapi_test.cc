// The description of the API says what the server does: every route, every field, every bound.
#include "server/page/openapi.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <set>
#include <string>
#include <vector>

#include "server/api/request/completion_request.h"
#include "server/api/request/field_schemas.h"
#include "server/api/request/tokens_request.h"
#include "server/api/response/message_events.h"
#include "server/route.h"
#include "tests/server/api/samples.h"

namespace sluice::server {
namespace {

namespace dom = simdjson::dom;

struct Kind {
  Route route;
  std::vector<FieldSchema> fields;
  std::string (*refused)(const std::string& body);  // the field of the error; "": none
  std::string required;                             // a field that makes the rest a request
};

template <typename Parse>
std::string FieldOfError(Parse parse) {
  try {
    parse();
    return "";
  } catch (const ApiFailure& failure) {
    EXPECT_NE(failure.error().code, "unknown_parameter") << failure.error().message;
    return failure.error().param;
  }
}

std::string RefusedBy(Api api, const std::string& body) {
  return FieldOfError([&] { ParseCompletionRequest(api, body, {}, {.refuses_unknown = true}); });
}

std::vector<Kind> Kinds() {
  return {
      {Route::kCompletions, CompletionSchemas(Api::kCompletions),
       [](const std::string& body) { return RefusedBy(Api::kCompletions, body); },
       R"("prompt":"a")"},
      {Route::kChatCompletions, CompletionSchemas(Api::kChat),
       [](const std::string& body) { return RefusedBy(Api::kChat, body); },
       R"("messages":[{"role":"user","content":"a"}])"},
      {Route::kMessages, CompletionSchemas(Api::kMessages),
       [](const std::string& body) { return RefusedBy(Api::kMessages, body); },
       R"("max_tokens":2147483647,"messages":[{"role":"user","content":"a"}])"},
      {Route::kCountTokens, CompletionSchemas(Api::kCountTokens),
       [](const std::string& body) { return RefusedBy(Api::kCountTokens, body); },
       R"("messages":[{"role":"user","content":"a"}])"},
      {Route::kResponses, CompletionSchemas(Api::kResponses),
       [](const std::string& body) { return RefusedBy(Api::kResponses, body); }, R"("input":"a")"},
      {Route::kTokenize, TokenizeSchemas(),
       [](const std::string& body) {
         return FieldOfError([&] { ParseTokenizeRequest(body, true); });
       },
       R"("prompt":"a")"},
      {Route::kDetokenize, DetokenizeSchemas(),
       [](const std::string& body) {
         return FieldOfError([&] { ParseDetokenizeRequest(body, true); });
       },
       R"("tokens":[1])"},
  };
}

// Of a field that comes twice the first one counts.
std::string BodyWith(const Kind& kind, std::string_view name, const std::string& value) {
  return "{\"" + std::string(name) + "\":" + value + "," + kind.required + "}";
}

class OpenApi : public testing::Test {
 protected:
  OpenApi() : text_(OpenApiText()), document_(parser_.parse(text_)) {}

  dom::element SchemaOf(Route route) {
    return document_["paths"][RowOf(route).name]["post"]["requestBody"]["content"]
                    ["application/json"]["schema"]["properties"];
  }

  const std::string text_;
  dom::parser parser_;
  dom::element document_;
};

TEST_F(OpenApi, HasEveryRoute) {
  EXPECT_EQ(std::string_view(document_["openapi"]), "3.1.0");
  size_t routes = 0;
  for (; static_cast<Route>(routes) != Route::kNone; ++routes) {
    const RouteRow& row = RowOf(static_cast<Route>(routes));
    const char* const method = row.is_post ? "post" : "get";
    dom::element operation;
    EXPECT_EQ(document_["paths"][row.name][method].get(operation), simdjson::SUCCESS) << row.name;
    EXPECT_EQ(operation["security"].error() == simdjson::NO_SUCH_FIELD, row.needs_key) << row.name;
  }
  EXPECT_EQ(dom::object(document_["paths"]).size(), routes);
}

// Also those of params.def and of grammars: the same tables read requests.
TEST_F(OpenApi, HasEveryFieldAndNoOther) {
  for (const Kind& kind : Kinds()) {
    const dom::object properties = SchemaOf(kind.route);
    std::set<std::string_view> names;
    for (const FieldSchema& field : kind.fields) {
      EXPECT_TRUE(names.insert(field.name).second) << field.name << " twice";
      EXPECT_EQ(properties[field.name].error(), simdjson::SUCCESS) << field.name;
      kind.refused(BodyWith(kind, field.name, "null"));  // no error says that it is unknown
    }
    EXPECT_EQ(properties.size(), names.size());
    EXPECT_EQ(properties["temprature"].error(), simdjson::NO_SUCH_FIELD);
  }
}

TEST_F(OpenApi, HasTheBoundsOfNumbersThatTheServerHas) {
  int bounds = 0;
  for (const Kind& kind : Kinds()) {
    for (const auto [key, schema] : dom::object(SchemaOf(kind.route))) {
      const std::string_view name = key;  // which clang 14 lets a lambda capture
      const auto is_refused = [&](const std::string& value) {
        return kind.refused(BodyWith(kind, name, value)) == name;
      };
      int64_t bound = 0;
      if (schema["minimum"].get(bound) == simdjson::SUCCESS) {
        EXPECT_TRUE(is_refused(std::to_string(bound - 1))) << name << " " << bound - 1;
        ++bounds;
      }
      if (schema["exclusiveMinimum"].get(bound) == simdjson::SUCCESS) {
        EXPECT_TRUE(is_refused(std::to_string(bound))) << name << " " << bound;
        ++bounds;
      }
      if (schema["maximum"].get(bound) == simdjson::SUCCESS) {
        EXPECT_TRUE(is_refused(std::to_string(bound + 1))) << name << " " << bound + 1;
        ++bounds;
      }
    }
  }
  EXPECT_GT(bounds, 40);
}

// That of the values of a schema but null; empty where they may have several.
std::string OnlyType(dom::element schema) {
  std::string_view text;
  if (schema["type"].get(text) == simdjson::SUCCESS) return std::string(text);
  dom::array types;
  if (schema["type"].get(types) != simdjson::SUCCESS || types.size() != 2) return "";
  return std::string(std::string_view(types.at(1)));
}

bool AllowsNull(dom::element schema) {
  dom::array list;
  for (const char* const word : {"type", "enum", "anyOf"}) {
    if (schema[word].get(list) != simdjson::SUCCESS) continue;
    const dom::element first = list.at(0);
    return first.is_null() || simdjson::minify(first) == "\"null\"" ||
           simdjson::minify(first) == R"({"type":"null"})";
  }
  return schema["type"].error() != simdjson::SUCCESS;
}

// Clients send null for what they leave out.
TEST_F(OpenApi, HasNullWhereTheServerTakesIt) {
  int nulls = 0;
  for (const Kind& kind : Kinds()) {
    for (const auto [name, schema] : dom::object(SchemaOf(kind.route))) {
      // One of two that a request has.
      if (kind.route == Route::kTokenize && std::string_view(name) == "prompt") continue;
      const bool is_taken = kind.refused(BodyWith(kind, name, "null")) != name;
      EXPECT_EQ(AllowsNull(schema), is_taken) << RowOf(kind.route).name << " " << name;
      ++nulls;
    }
  }
  EXPECT_GT(nulls, 150);
}

// A value of another type than the one in the description is refused.
TEST_F(OpenApi, HasTheTypesThatTheServerTakes) {
  int types = 0;
  for (const Kind& kind : Kinds()) {
    for (const auto [name, schema] : dom::object(SchemaOf(kind.route))) {
      const std::string type = OnlyType(schema);
      if (type.empty()) continue;
      for (const auto& [other, value] : {std::pair("boolean", "true"), std::pair("string", "\"?\""),
                                         std::pair("array", "[true]"), std::pair("object", "{}")}) {
        if (other == type) continue;
        // What is empty may be the default of a client, and a text may be a list of one.
        const std::string refused = kind.refused(BodyWith(kind, name, value));
        EXPECT_TRUE(refused.starts_with(name)) << name << " = " << value << ": " << refused;
        ++types;
      }
    }
  }
  EXPECT_GT(types, 150);
}

// Whether a value has the type that a schema names.
bool HasType(dom::element value, std::string_view type) {
  switch (value.type()) {
    case dom::element_type::NULL_VALUE:
      return type == "null";
    case dom::element_type::BOOL:
      return type == "boolean";
    case dom::element_type::STRING:
      return type == "string";
    case dom::element_type::ARRAY:
      return type == "array";
    case dom::element_type::OBJECT:
      return type == "object";
    case dom::element_type::DOUBLE:
      return type == "number";
    default:
      return type == "integer" || type == "number";
  }
}

// The words that our schemas of answers have. What a schema does not name is an error as well.
void ExpectMatch(dom::element value, dom::element schema, dom::element document,
                 const std::string& path) {
  SCOPED_TRACE(path);
  std::string_view text;
  dom::element part;
  if (schema["$ref"].get(text) == simdjson::SUCCESS) {
    return ExpectMatch(value, document.at_pointer(text.substr(1)), document, path);
  }
  if (schema["const"].get(part) == simdjson::SUCCESS) {
    EXPECT_EQ(simdjson::minify(value), simdjson::minify(part));
  }
  if (schema["enum"].get(part) == simdjson::SUCCESS) {
    bool is_one = false;
    for (const dom::element one : dom::array(part)) {
      is_one |= simdjson::minify(value) == simdjson::minify(one);
    }
    EXPECT_TRUE(is_one) << simdjson::minify(value);
  }
  if (schema["type"].get(part) == simdjson::SUCCESS) {
    bool is_one = part.is_string() && HasType(value, std::string_view(part));
    if (part.is_array()) {
      for (const dom::element one : dom::array(part)) {
        is_one |= HasType(value, std::string_view(one));
      }
    }
    EXPECT_TRUE(is_one) << simdjson::minify(value);
  }
  if (schema["required"].get(part) == simdjson::SUCCESS) {
    for (const dom::element name : dom::array(part)) {
      EXPECT_EQ(value[std::string_view(name)].error(), simdjson::SUCCESS) << name;
    }
  }
  if (value.is_object() && schema["properties"].get(part) == simdjson::SUCCESS) {
    for (const auto [key, member] : dom::object(value)) {
      dom::element its;
      ASSERT_EQ(part[key].get(its), simdjson::SUCCESS) << key << " is not in the schema";
      ExpectMatch(member, its, document, path + "/" + std::string(key));
    }
  }
  if (value.is_array() && schema["items"].get(part) == simdjson::SUCCESS) {
    for (const dom::element one : dom::array(value)) ExpectMatch(one, part, document, path + "/-");
  }
}

TEST_F(OpenApi, HasTheAnswersThatTheServerGives) {
  const auto expect = [&](Route route, const std::string& body, const char* status = "200") {
    const RouteRow& row = RowOf(route);
    const dom::element schema =
        document_["paths"][row.name][row.is_post ? "post" : "get"]["responses"][status]["content"]
                 ["application/json"]["schema"];
    dom::parser parser;
    ExpectMatch(parser.parse(body), schema, document_, std::string(row.name));
  };
  OutputParts parts;
  parts.Append(PartKind::kReasoning, -1, "r");
  parts.Append(PartKind::kContent, -1, "a");
  parts.Append(PartKind::kCallBegin, 0, "f");
  parts.Append(PartKind::kArguments, 0, "{}");
  const test::SampleLogprobs sample;
  const auto body = [&](Api api, bool is_parsed) {
    ResponseHead head = test::SampleHead(api);
    if (api == Api::kResponses) {
      head.id = "resp_1";
      head.echo_members =
          ParseCompletionRequest(api, R"({"input":"a","instructions":"b"})", {}).echo_members;
    }
    const bool is_open_ai = api == Api::kCompletions || api == Api::kChat;
    const WholeChoice choice = {
        .content = {.text = "a",
                    .parts = is_parsed ? &parts : nullptr,
                    .logprobs = is_open_ai ? sample.View() : TokenLogprobs{},
                    .token_ids = sample.ids},
        .end = {.end = GenerationEnd::kStopToken, .has_calls = is_parsed},
        .prompt_ids = sample.ids};
    return CompletionBody(head, {&choice, 1}, {5, 7, 2}, test::SampleTokenizer());
  };
  expect(Route::kCompletions, body(Api::kCompletions, false));
  for (const bool is_parsed : {false, true}) {
    expect(Route::kChatCompletions, body(Api::kChat, is_parsed));
    expect(Route::kMessages, body(Api::kMessages, is_parsed));
    expect(Route::kResponses, body(Api::kResponses, is_parsed));
  }
  expect(Route::kCountTokens, CountBody(3));
  const ModelCard card = {.id = "m", .created = 1, .context = 2};
  expect(Route::kModel, ModelBody(card));
  expect(Route::kModels, ModelsBody({&card, 1}));
  for (const bool has_strings : {false, true}) {
    expect(Route::kTokenize, TokenizeBody(sample.ids, 9, test::SampleTokenizer(), has_strings));
  }
  expect(Route::kDetokenize, DetokenizeBody("a"));
  const ApiError error = {.message = "m", .param = "p"};
  expect(Route::kTokenize, ErrorBody(error), "default");
  expect(Route::kMessages, MessageErrorBody(error, "r"), "default");
}

TEST(DocsPage, HasEveryFieldAndNothingOfAnotherAddress) {
  const HttpResponse page = DocsPage();
  for (const Kind& kind : Kinds()) {
    EXPECT_NE(page.body.find("POST " + std::string(RowOf(kind.route).name)), std::string::npos);
    for (const FieldSchema& field : kind.fields) {
      EXPECT_NE(page.body.find(">" + std::string(field.name) + "<td>"), std::string::npos);
    }
  }
  for (const char* const other : {"http:", "https:", "//", "<script", "<link", "<img"}) {
    EXPECT_EQ(page.body.find(other), std::string::npos) << other;
  }
}

}  // namespace
}  // namespace sluice::server
