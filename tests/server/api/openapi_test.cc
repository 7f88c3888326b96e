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
#include "server/route.h"

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

// A value of another type than the one in the description is refused.
TEST_F(OpenApi, HasTheTypesThatTheServerTakes) {
  int types = 0;
  for (const Kind& kind : Kinds()) {
    for (const auto [name, schema] : dom::object(SchemaOf(kind.route))) {
      std::string_view type;
      if (schema["type"].get(type) != simdjson::SUCCESS) continue;
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
