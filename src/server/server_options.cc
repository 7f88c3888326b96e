#include "server/server_options.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/listen_socket.h"
#include "server/tls/tls.h"
#include "sluice/reasoning.hpp"
#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::server {
namespace {

constexpr int64_t kMostMilliseconds = INT32_MAX / 4;
constexpr int64_t kMostBytes = int64_t{1} << 30;

void CheckTime(std::string_view name, std::chrono::milliseconds value, int64_t low) {
  CheckInRange(name, value.count(), low, kMostMilliseconds);
}
void CheckBytes(std::string_view name, size_t value, int64_t low) {
  CheckInRange(name, static_cast<int64_t>(std::min<size_t>(value, INT64_MAX)), low, kMostBytes);
}

void CheckHttp(const HttpLimits& http) {
  CheckBytes("http.request_line_bytes", http.request_line_bytes, 64);
  CheckBytes("http.header_bytes", http.header_bytes, 64);
  CheckInRange("http.header_fields", http.header_fields, 1, 1 << 16);
  CheckBytes("http.body_bytes", http.body_bytes, 1);
  CheckBytes("http.inflight_bytes", http.inflight_bytes, 1);
  CheckTime("http.header_timeout", http.header_timeout, 1);
  CheckBytes("http.body_bytes_per_second", http.body_bytes_per_second, 0);
  CheckTime("http.idle_timeout", http.idle_timeout, 1);
  CheckTime("http.write_timeout", http.write_timeout, 1);
  CheckBytes("http.unsent_bytes", http.unsent_bytes, 1);
  CheckBytes("http.coalesce_bytes", http.coalesce_bytes, 1);
  CheckBytes("http.pipelined_bytes", http.pipelined_bytes, 0);
  CheckInRange("http.connections", http.connections, 1, 1 << 24);
  CheckInRange("http.handshakes", http.handshakes, 1, 1 << 24);
}

// The error does not have the value: a key belongs in no log.
void CheckKey(const std::string& key) {
  const bool is_good =
      !key.empty() && std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; });
  if (is_good) return;
  ThrowInvalid("api_keys", "one of them", "visible characters of ASCII, one or more");
}

void CheckOrigin(const std::string& origin) {
  if (origin == "*") return;
  const size_t scheme = origin.find("://");
  const bool is_good = scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() &&
                       origin.find('/', scheme + 3) == std::string::npos &&
                       std::ranges::all_of(origin, [](char c) { return c > ' ' && c < 0x7f; });
  if (is_good) return;
  ThrowInvalid("cors_origins", ToText(std::string_view(origin)),
               "\"*\", or as browsers spell it: https://example.org, without a path");
}

}  // namespace

void CheckApiKeys(const std::vector<std::string>& keys, bool needs_key) {
  CheckInRange("api_keys", std::ssize(keys), needs_key ? 1 : 0, needs_key ? INT32_MAX : 0);
  for (const std::string& key : keys) CheckKey(key);
}

void CheckServerOptions(const ServerOptions& options) {
  CheckInRange("engines", std::ssize(options.engines), 1, INT32_MAX);
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    ThrowInvalid(options.tls_key.empty() ? "tls_key" : "tls_cert", "",
                 "both of a certificate and its key, or none of them");
  }
  if (!options.tls_cert.empty()) TlsContext(options.tls_cert, options.tls_key);
  CheckTime("connect_timeout", options.connect_timeout, 0);
  CheckTime("start_timeout", options.start_timeout, 0);
  CheckTime("stall_timeout", options.stall_timeout, 1);
  CheckInRange("threads", options.threads, 1, 1024);
  CheckInRange("encode_threads", options.encode_threads, 1, 1024);
  CheckInRange("max_requests", options.max_requests, 1, INT32_MAX);
  CheckInRange("max_requests_per_key", options.max_requests_per_key, 0, INT32_MAX);
  if (options.max_requests_per_key > 0 && options.api_keys.empty()) {
    ThrowInvalid("max_requests_per_key", ToText(int64_t{options.max_requests_per_key}),
                 "0 where there are no api_keys");
  }
  for (const std::string& name : options.model_names) {
    if (name.empty() || !text::IsUtf8(name)) {
      ThrowInvalid("model_names", ToText(std::string_view(name)), "names in UTF-8");
    }
  }
  for (const std::string& key : options.api_keys) CheckKey(key);
  for (const std::string& origin : options.cors_origins) CheckOrigin(origin);
  if (!options.tool_format.empty()) ToolFormatByName(options.tool_format);
  if (!options.reasoning_format.empty()) ReasoningFormatByName(options.reasoning_format);
  CheckInRange("reasoning_budget", options.reasoning_budget, -1, INT32_MAX);
  CheckHttp(options.http);
  CheckTime("keep_alive", options.keep_alive, 1);
  CheckTime("drain_timeout", options.drain_timeout, 0);
}

void CheckCanListen(const ServerOptions& options) {
  const ListenSocket socket(
      {.host = options.host, .port = options.port, .unix_socket = options.unix_socket},
      options.http, nullptr);
}

}  // namespace sluice::server
