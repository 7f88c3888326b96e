// The routes: what each is called, which methods it takes, and what access it needs.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

namespace sluice::server {

enum class Route : uint8_t {
  kPage,
  kOpenApi,
  kDocs,
  kCompletions,
  kChatCompletions,
  kMessages,
  kCountTokens,
  kResponses,
  kModels,
  kModel,
  kTokenize,
  kDetokenize,
  kHealth,
  kReady,
  kVersion,
  kLoad,
  kMetrics,
  kNone,  // what is at none of them
};

struct RouteRow {
  Route route;
  std::string_view path;  // of kModel what the path begins with
  std::string_view name;  // as /metrics has it
  bool is_post;           // else GET, and HEAD
  bool needs_key;         // where there are keys
};
const RouteRow& RouteOf(std::string_view path);
const RouteRow& RowOf(Route route);

// "POST", "GET, HEAD".
std::string_view Methods(const RouteRow& row);
bool TakesMethod(const RouteRow& row, std::string_view method);

// Responses, by route and status.
using RouteCounts = std::map<std::pair<Route, int>, int64_t>;

}  // namespace sluice::server
