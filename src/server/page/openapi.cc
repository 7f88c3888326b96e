#include "server/page/openapi.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "json/writer.h"
#include "server/api/request/field_schemas.h"
#include "server/page/answer_schemas.h"
#include "server/route.h"
#include "sluice/version.hpp"

namespace sluice::server {
namespace {

struct Operation {
  Route route;
  std::string_view id;
  std::string_view summary;
  std::vector<FieldSchema> (*fields)() = nullptr;  // of the body; null: there is none
  std::string_view required[2] = {};               // of these
  std::string_view type = "application/json";      // of the answer
};

constexpr std::string_view kEvents = "text/event-stream";
constexpr Operation kOperations[] = {
    {Route::kPage, "page", "A page to try the model", nullptr, {}, "text/html"},
    {Route::kOpenApi, "openapi", "This description"},
    {Route::kDocs, "docs", "This description as a page", nullptr, {}, "text/html"},
    {Route::kCompletions,
     "createCompletion",
     "Continue one or more texts",
     [] { return CompletionSchemas(Api::kCompletions); },
     {"prompt"}},
    {Route::kChatCompletions,
     "createChatCompletion",
     "Answer the messages of a chat",
     [] { return CompletionSchemas(Api::kChat); },
     {"messages"}},
    {Route::kMessages,
     "createMessage",
     "Answer messages, as Anthropic's API has them",
     [] { return CompletionSchemas(Api::kMessages); },
     {"messages", "max_tokens"}},
    {Route::kCountTokens,
     "countMessageTokens",
     "The number of tokens of such messages",
     [] { return CompletionSchemas(Api::kCountTokens); },
     {"messages"}},
    {Route::kResponses,
     "createResponse",
     "Answer items, as OpenAI's responses have them",
     [] { return CompletionSchemas(Api::kResponses); },
     {"input"}},
    {Route::kModels, "listModels", "The names of the model"},
    {Route::kModel, "retrieveModel", "One of these names"},
    {Route::kTokenize, "tokenize", "Token ids of a text or of messages", TokenizeSchemas},
    {Route::kDetokenize, "detokenize", "The text of token ids", DetokenizeSchemas, {"tokens"}},
    {Route::kHealth, "health", "Whether an engine is ready"},
    {Route::kReady, "ready", "Whether the server has a place for another request"},
    {Route::kVersion, "version", "The version of the server"},
    {Route::kLoad, "load", "How many choices are in flight"},
    {Route::kMetrics, "metrics", "Metrics for Prometheus", nullptr, {}, "text/plain"},
};

bool Streams(const Operation& operation) {
  constexpr Route kStreams[] = {Route::kCompletions, Route::kChatCompletions, Route::kMessages,
                                Route::kResponses};
  return std::ranges::find(kStreams, operation.route) != std::end(kStreams);
}

std::string_view ErrorSchema(Route route) {
  return route == Route::kMessages || route == Route::kCountTokens
             ? R"({"$ref":"#/components/schemas/MessageError"})"
             : R"({"$ref":"#/components/schemas/Error"})";
}

void WriteType(JsonWriter& json, std::string_view type, std::string_view schema) {
  json.Key(type).Object([&] { json.Key("schema").Raw(schema); });
}

void WriteResponses(JsonWriter& json, const Operation& operation) {
  json.Key("200").Object([&] {
    json.Key("description").Value("OK");
    json.Key("content").Object([&] {
      const bool is_json = operation.type == "application/json";
      WriteType(json, operation.type,
                is_json ? AnswerSchema(operation.route) : R"({"type":"string"})");
      if (Streams(operation)) WriteType(json, kEvents, R"({"type":"string"})");
    });
  });
  json.Key("default").Object([&] {
    json.Key("description").Value("An error");
    json.Key("content").Object(
        [&] { WriteType(json, "application/json", ErrorSchema(operation.route)); });
  });
}

// Null is the same as no field.
std::string OrNull(std::string_view schema) {
  struct Form {
    std::string_view begin;
    std::string_view with_null;
  };
  constexpr Form kForms[] = {{R"({"anyOf":[)", R"({"anyOf":[{"type":"null"},)"},
                             {R"({"enum":[)", R"({"enum":[null,)"},
                             {R"({"type":[)", R"({"type":["null",)"}};
  for (const Form& form : kForms) {
    if (!schema.starts_with(form.begin)) continue;
    return std::string(form.with_null).append(schema.substr(form.begin.size()));
  }
  constexpr std::string_view kType = R"({"type":)";
  if (!schema.starts_with(kType)) return std::string(schema);  // any value
  const size_t end = schema.find('"', kType.size() + 1) + 1;
  std::string text(kType);
  text.append(R"(["null",)").append(schema.substr(kType.size(), end - kType.size()));
  return text.append("]").append(schema.substr(end));
}

void WriteBody(JsonWriter& json, const Operation& operation) {
  json.Key("required").Value(true);
  json.Key("content").Object([&] {
    json.Key("application/json").Object([&] {
      json.Key("schema").Object([&] {
        json.Key("type").Value("object");
        if (!operation.required[0].empty()) {
          json.Key("required").Array([&] {
            for (const std::string_view name : operation.required) {
              if (!name.empty()) json.Value(name);
            }
          });
        }
        json.Key("properties").Object([&] {
          for (const FieldSchema& field : operation.fields()) {
            const bool is_required = std::ranges::count(operation.required, field.name) > 0;
            json.Key(field.name).Raw(is_required ? field.schema : OrNull(field.schema));
          }
        });
      });
    });
  });
}

void WriteOperation(JsonWriter& json, const Operation& operation, const RouteRow& row) {
  json.Key("operationId").Value(operation.id);
  json.Key("summary").Value(operation.summary);
  if (!row.needs_key) json.Key("security").Array([] {});
  if (operation.route == Route::kModel) {
    json.Key("parameters")
        .Raw(R"([{"name":"id","in":"path","required":true,"schema":{"type":"string"}}])");
  }
  if (operation.fields != nullptr) {
    json.Key("requestBody").Object([&] { WriteBody(json, operation); });
  }
  json.Key("responses").Object([&] { WriteResponses(json, operation); });
}

constexpr std::string_view kSecurity =
    R"({"key":{"type":"http","scheme":"bearer","description":"where the server has keys"},)"
    R"("api_key":{"type":"apiKey","in":"header","name":"X-Api-Key"}})";

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

constexpr std::string_view kHead =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Sluice: the API</title>"
    "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" "
    "content=\"light dark\"><h1>The API</h1><p>As <a href=\"/openapi.json\">OpenAPI 3.1</a>. "
    "The values of a field are shown as JSON Schema; null is the same as no field.";

}  // namespace

std::string OpenApiText() {
  std::ostringstream text;
  JsonWriter json(text);
  json.Object([&] {
    json.Key("openapi").Value("3.1.0");
    json.Key("info").Object([&] {
      json.Key("title").Value("Sluice");
      json.Key("version").Value(kVersionString);
    });
    json.Key("security").Raw(R"([{"key":[]},{"api_key":[]}])");
    json.Key("paths").Object([&] {
      for (const Operation& operation : kOperations) {
        const RouteRow& row = RowOf(operation.route);
        json.Key(row.name).Object([&] {
          json.Key(row.is_post ? "post" : "get").Object([&] {
            WriteOperation(json, operation, row);
          });
        });
      }
    });
    json.Key("components").Object([&] {
      json.Key("securitySchemes").Raw(kSecurity);
      json.Key("schemas").Raw("{" + std::string(kAnswerParts) + "}");
    });
  });
  return std::move(text).str();
}

HttpResponse DocsPage() {
  std::string body(kHead);
  for (const Operation& operation : kOperations) {
    const RouteRow& row = RowOf(operation.route);
    body.append("<h2>").append(row.is_post ? "POST " : "GET ").append(row.name);
    body.append("</h2><p>").append(operation.summary).append(".");
    if (operation.fields == nullptr) continue;
    body.append("<table>");
    for (const FieldSchema& field : operation.fields()) {
      body.append("<tr><th align=\"left\">").append(field.name).append("<td><code>");
      body.append(Escaped(field.schema)).append("</code>");
    }
    body.append("</table>");
  }
  HttpResponse response{.content_type = "text/html; charset=utf-8", .body = std::move(body)};
  response.fields.push_back({"Content-Security-Policy",
                             "default-src 'none'; base-uri 'none'; form-action 'none'; "
                             "frame-ancestors 'none'"});
  return response;
}

}  // namespace sluice::server
