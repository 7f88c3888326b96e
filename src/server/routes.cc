#include "server/routes.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "json/writer.h"
#include "server/access_log.h"
#include "server/api/request/tokens_request.h"
#include "server/api/response/message_events.h"
#include "server/error_response.h"
#include "server/page/openapi.h"
#include "server/page/page.h"
#include "server/tokens.h"
#include "server/tracked_answer.h"
#include "sluice/version.hpp"
#include "support/check.h"

namespace sluice::server {
namespace {

// A client that went away before it was answered, as web servers log it.
constexpr int kClientIsGone = 499;
constexpr size_t kMostShown = 128;  // of a header field's value

// Those that make work: a limited number may be in flight; the others are answered at once.
bool TakesPlace(const RouteRow& row) { return row.is_post; }

// A page of another origin can send any other type without a preflight, and so can one that sends
// none.
bool IsJson(const HttpRequest& head) {
  constexpr std::string_view kJson = "application/json";
  std::string type(head.Field("Content-Type").value_or(""));
  type.resize(std::min(type.size(), type.find_first_of("; \t")));
  for (char& c : type) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
  return type == kJson;
}

HttpResponse NotFound(const HttpRequest& head) {
  return ErrorResponse({.status = 404,
                        .message = "there is nothing at " + head.path +
                                   "; GET /docs and GET /openapi.json list what the server has",
                        .code = "not_found"});
}

HttpResponse WrongMethod(const HttpRequest& head, std::string_view methods) {
  HttpResponse response = ErrorResponse(
      {.status = 405,
       .message = head.path + " takes " + std::string(methods) + ", not " + head.method,
       .code = "method_not_allowed"});
  response.fields.push_back({"Allow", std::string(methods)});
  return response;
}

// Nothing would read it, and most of these routes need no key.
bool HasBody(const HttpRequest& head) {
  return head.Field("Transfer-Encoding").has_value() ||
         head.Field("Content-Length").value_or("0").find_first_not_of('0') !=
             std::string_view::npos;
}

HttpResponse HasNoUseForBody(const HttpRequest& head) {
  return ErrorResponse({.status = 400,
                        .message = head.method + " " + head.path + " takes no body",
                        .code = "bad_http_request"});
}

HttpResponse WrongKey() {
  HttpResponse response =
      ErrorResponse({.status = 401,
                     .message = "a key of this server is needed, as Authorization: Bearer KEY",
                     .code = "invalid_api_key"});
  response.fields.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

HttpResponse WrongHost(std::string_view host) {
  return ErrorResponse({.status = 403,
                        .message = "Host = " + ToText(host.substr(0, kMostShown)) +
                                   " is not allowed: this server needs no key and answers to "
                                   "localhost and IP addresses; --allowed-host adds a name",
                        .code = "host_not_allowed"});
}

HttpResponse WrongEncoding(std::string_view encoding) {
  return ErrorResponse({.status = 415,
                        .message = "Content-Encoding = " + ToText(encoding.substr(0, kMostShown)) +
                                   " is not allowed: identity, or no such header field",
                        .code = "unsupported_media_type"});
}

bool IsIdentity(std::string_view encoding) {
  constexpr std::string_view kIdentity = "identity";
  return std::ranges::equal(encoding, kIdentity, [](char c, char small) {
    return (c >= 'A' && c <= 'Z' ? c | 32 : c) == small;
  });
}

HttpResponse WrongType() {
  return ErrorResponse({.status = 415,
                        .message = "the body has to be JSON, with Content-Type: application/json",
                        .code = "unsupported_media_type"});
}

// Of Anthropic's API, with its form of errors and its name of X-Request-Id.
bool IsOfMessages(Route route) { return route == Route::kMessages || route == Route::kCountTokens; }

ModelCard CardOf(const std::string& name, const ServerState& state) {
  return {.id = name, .created = state.created, .context = state.info.context};
}

HttpResponse ModelList(const ServerState& state) {
  std::vector<ModelCard> cards;
  for (const std::string& name : state.model_names) cards.push_back(CardOf(name, state));
  return {.body = ModelsBody(cards)};
}

HttpResponse OneModel(const HttpRequest& request, const ServerState& state) {
  const std::string name = request.path.substr(RowOf(Route::kModel).path.size());
  CheckModelName(name, state);
  return {.body = ModelBody(CardOf(name, state))};
}

}  // namespace

std::string_view Routes::WhyUnhealthy() const {
  if (state_.is_draining.load(std::memory_order_relaxed)) return "draining";
  const EngineHealth health = services_.engine_health();
  return health == EngineHealth::kReady ? std::string_view() : Name(health);
}

// With the state of the engines: of several, how many are ready where some are not; where none is,
// what the first that has a reason says of it.
HttpResponse Routes::StatusResponse(std::string_view good, std::string_view why_not) const {
  const std::vector<EngineState> engines = services_.engines();
  const auto is_ready = [](const EngineState& its) { return its.health == EngineHealth::kReady; };
  const int64_t ready = std::ranges::count_if(engines, is_ready);
  std::ostringstream body;
  JsonWriter json(body);
  json.Object([&] {
    json.Key("status").Value(why_not.empty() ? good : why_not);
    if (engines.size() > 1 && ready < std::ssize(engines)) {
      json.Key("engines").Value(std::ssize(engines));
      json.Key("engines_ready").Value(ready);
    }
    const auto known = std::ranges::find_if(
        engines, [](const EngineState& engine) { return !engine.reason.empty(); });
    if (ready == 0 && known != engines.end()) json.Key("reason").Value(known->reason);
  });
  HttpResponse response{.status = why_not.empty() ? 200 : 503, .body = std::move(body).str()};
  if (!why_not.empty()) response.fields.push_back({"Retry-After", "1"});
  response.fields.push_back({"Cache-Control", "no-store"});
  return response;
}

std::optional<HttpResponse> Routes::RefusalOf(const HttpRequest& head, const RouteRow& row) const {
  const std::string_view host = head.Field("Host").value_or("");
  if (!state_.hosts.Passes(host)) return WrongHost(host);
  std::string methods(Methods(row));
  if (state_.access.knows_origins()) {
    methods += ", OPTIONS";
    if (auto preflight = state_.access.Preflight(head, methods)) return preflight;
  }
  if (row.route == Route::kNone) return NotFound(head);
  if (!TakesMethod(row, head.method)) return WrongMethod(head, methods);
  if (!row.is_post && HasBody(head)) return HasNoUseForBody(head);
  const bool needs_key = row.needs_key && state_.access.needs_key();
  if (needs_key && !state_.access.FindKey(head).has_value()) return WrongKey();
  if (row.is_post && !IsJson(head)) return WrongType();
  if (row.is_post) {
    for (const HttpField& field :
         head.fields) {  // a second field adds to the first (RFC 9110, 5.3)
      if (!field.IsNamed("Content-Encoding")) continue;
      if (!IsIdentity(field.value)) return WrongEncoding(field.value);
    }
  }
  if (TakesPlace(row) && state_.is_draining.load(std::memory_order_relaxed)) {
    return ErrorResponse(Unavailable("the server is about to end and takes no new requests"));
  }
  return std::nullopt;
}

std::optional<HttpResponse> Routes::Refuse(const HttpRequest& head) {
  const RouteRow& row = RouteOf(head.path);
  std::optional<HttpResponse> refusal = RefusalOf(head, row);
  if (refusal.has_value()) {
    Finish(head, row.route, *refusal);
    Log(head, refusal->status, true, std::chrono::steady_clock::now());
  }
  return refusal;
}

uint64_t Routes::ClientOf(const HttpRequest& head) {
  const auto requester = state_.access.FindRequester(head);
  if (!requester.has_value()) return head.peer;  // of a route that needs no key
  return requester->shares ? requester->id : 0;
}

HttpResponse Routes::Malformed(const HttpRequest& request, int status, std::string_view what) {
  HttpResponse response = ErrorResponse(
      status == 503 ? Unavailable(what)
                    : ApiError{.status = status,
                               .message = std::string(what),
                               .code = status == 413 ? "request_too_large" : "bad_http_request"});
  Finish(request, Route::kNone, response);
  Log(request, status, true, std::chrono::steady_clock::now());
  return response;
}

std::unique_ptr<Answer> Routes::Handle(Exchange& exchange) {
  const RouteRow& row = RouteOf(exchange.request().path);
  auto answer = std::make_unique<TrackedAnswer>(
      exchange,
      [this, &exchange, &row](HttpResponse& head) { Finish(exchange.request(), row.route, head); },
      [this, &exchange, &row, begin = std::chrono::steady_clock::now()](int status,
                                                                        bool has_ended) {
        if (status == 0) ++counts_[{row.route, kClientIsGone}];
        Log(exchange.request(), status == 0 ? kClientIsGone : status, has_ended, begin);
      });
  try {
    if (TakesPlace(row)) {
      const auto requester = state_.access.FindRequester(exchange.request());
      if (!requester.has_value()) {  // its key was one when the head came
        answer->exchange().Respond(WrongKey());
        return nullptr;
      }
      const bool has_turns = requester->shares && !state_.options.has_common_priorities;
      answer->exchange().SetPermit(state_.admission.Admit(*requester),
                                   has_turns ? requester->id : 0);
    }
    if (answer->SetInner(Dispatch(row, answer->exchange()))) return answer;
  } catch (...) {
    if (answer->exchange().has_begun()) throw;
    answer->exchange().Respond(ErrorResponse(ErrorOfException()));
  }
  return nullptr;
}

std::unique_ptr<Answer> Routes::Dispatch(const RouteRow& row, Exchange& exchange) {
  switch (row.route) {
    case Route::kCompletions:
      return services_.Complete(exchange, Api::kCompletions);
    case Route::kChatCompletions:
      return services_.Complete(exchange, Api::kChat);
    case Route::kMessages:
      return services_.Complete(exchange, Api::kMessages);
    case Route::kCountTokens:
      return services_.Complete(exchange, Api::kCountTokens);
    case Route::kResponses:
      return services_.Complete(exchange, Api::kResponses);
    case Route::kTokenize:
      return Tokenize(exchange, state_, services_);
    case Route::kDetokenize:
      return Detokenize(exchange, state_, services_);
    case Route::kMetrics:
      return services_.Measure(exchange);
    case Route::kPage:
      exchange.Respond(Page());
      return nullptr;
    case Route::kOpenApi:
      exchange.Respond({.body = OpenApiText()});
      return nullptr;
    case Route::kDocs:
      exchange.Respond(DocsPage());
      return nullptr;
    case Route::kModels:
      exchange.Respond(ModelList(state_));
      return nullptr;
    case Route::kModel:
      exchange.Respond(OneModel(exchange.request(), state_));
      return nullptr;
    case Route::kHealth: {
      const std::string_view why = WhyUnhealthy();
      exchange.Respond(StatusResponse("ok", why));
      return nullptr;
    }
    case Route::kReady: {
      std::string_view why = WhyUnhealthy();
      if (why.empty() && state_.admission.is_full()) why = "full";
      exchange.Respond(StatusResponse("ready", why));
      return nullptr;
    }
    case Route::kVersion:
      exchange.Respond({.body = "{\"version\":\"" + std::string(kVersionString) + "\"}"});
      return nullptr;
    case Route::kLoad:  // as vLLM's server has it
      exchange.Respond(
          {.body = "{\"server_load\":" + std::to_string(state_.admission.in_flight()) + "}"});
      return nullptr;
    case Route::kNone:
      break;
  }
  exchange.Respond(NotFound(exchange.request()));
  return nullptr;
}

void Routes::Log(const HttpRequest& request, int status, bool is_complete,
                 std::chrono::steady_clock::time_point begin) const {
  if (!state_.options.access_log) return;
  try {
    state_.options.access_log(
        AccessLine(request, {.status = status,
                             .is_complete = is_complete,
                             .ended = std::chrono::system_clock::now(),
                             .took = std::chrono::steady_clock::now() - begin}));
  } catch (const std::exception&) {  // no memory for a line, and nowhere to say so
  }
}

void Routes::Finish(const HttpRequest& request, Route route, HttpResponse& response) {
  if (IsOfMessages(RouteOf(request.path).route)) {
    response.fields.push_back({"Request-Id", request.id});
    if (response.error != nullptr) response.body = MessageErrorBody(*response.error, request.id);
  }
  ++counts_[{route, response.status}];
  state_.access.AddFields(request, response.fields);
  response.fields.push_back({"X-Content-Type-Options", "nosniff"});
}

}  // namespace sluice::server
