#include "cli/engine/endpoint.h"

#include <charconv>
#include <string>

#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr std::string_view kTcp = "tcp://";

bool IsPort(std::string_view text) {
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return text == "*" ||
         (error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65535);
}

}  // namespace

void CheckEndpoint(std::string_view parameter, std::string_view endpoint) {
  if (endpoint.starts_with(kIpc) && endpoint.size() > kIpc.size()) return;
  const size_t colon = endpoint.rfind(':');
  const bool is_tcp = endpoint.starts_with(kTcp) && colon > kTcp.size() &&
                      colon != std::string_view::npos && IsPort(endpoint.substr(colon + 1));
  if (is_tcp) return;
  throw Error(ErrorCode::kInvalidValue, std::string(parameter), Quoted(endpoint),
              "ipc://PATH, ipc://@NAME or tcp://HOST:PORT");
}

bool IsLocal(std::string_view endpoint) {
  if (!endpoint.starts_with(kTcp)) return true;
  const std::string_view address = endpoint.substr(kTcp.size());
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

}  // namespace sluice::cli
