#include "server/route.h"

#include <algorithm>
#include <iterator>

namespace sluice::server {
namespace {

// In the order of Route.
constexpr RouteRow kRoutes[] = {
    {Route::kPage, "/", "/", false, false},
    {Route::kOpenApi, "/openapi.json", "/openapi.json", false, false},
    {Route::kDocs, "/docs", "/docs", false, false},
    {Route::kCompletions, "/v1/completions", "/v1/completions", true, true},
    {Route::kChatCompletions, "/v1/chat/completions", "/v1/chat/completions", true, true},
    {Route::kMessages, "/v1/messages", "/v1/messages", true, true},
    {Route::kCountTokens, "/v1/messages/count_tokens", "/v1/messages/count_tokens", true, true},
    {Route::kResponses, "/v1/responses", "/v1/responses", true, true},
    {Route::kModels, "/v1/models", "/v1/models", false, true},
    {Route::kModel, "/v1/models/", "/v1/models/{id}", false, true},
    {Route::kTokenize, "/tokenize", "/tokenize", true, true},
    {Route::kDetokenize, "/detokenize", "/detokenize", true, true},
    {Route::kHealth, "/health", "/health", false, false},
    {Route::kReady, "/ready", "/ready", false, false},
    {Route::kVersion, "/version", "/version", false, false},
    {Route::kLoad, "/load", "/load", false, false},
    {Route::kMetrics, "/metrics", "/metrics", false, false},
    {Route::kNone, "", "other", false, false},
};

}  // namespace

const RouteRow& RowOf(Route route) { return kRoutes[static_cast<size_t>(route)]; }

const RouteRow& RouteOf(std::string_view path) {
  if (path == "/ping") return RowOf(Route::kHealth);  // as load balancers of vLLM have it
  const RouteRow& model = RowOf(Route::kModel);
  if (path.size() > model.path.size() && path.starts_with(model.path)) return model;
  const auto* const found = std::ranges::find_if(kRoutes, [&](const RouteRow& row) {
    return row.route != Route::kModel && row.route != Route::kNone && row.path == path;
  });
  return found == std::end(kRoutes) ? RowOf(Route::kNone) : *found;
}

std::string_view Methods(const RouteRow& row) { return row.is_post ? "POST" : "GET, HEAD"; }

bool TakesMethod(const RouteRow& row, std::string_view method) {
  return row.is_post ? method == "POST" : method == "GET" || method == "HEAD";
}

}  // namespace sluice::server
