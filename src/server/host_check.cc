#include "server/host_check.h"

#include <arpa/inet.h>

#include <algorithm>

namespace sluice::server {
namespace {

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
  return lowered;
}

bool IsAddress(const std::string& host, int family) {
  in6_addr address = {};
  return ::inet_pton(family, host.c_str(), &address) == 1;
}

bool IsLocalName(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost");
}

bool IsLoopback(const std::string& host) {
  return IsLocalName(Lowered(host)) || host == "::1" ||
         (host.starts_with("127.") && IsAddress(host, AF_INET));
}

}  // namespace

HostCheck::HostCheck(const ServerOptions& options)
    : is_on_(options.api_keys.empty() && options.unix_socket.empty() && IsLoopback(options.host)) {
  for (const std::string& name : options.allowed_hosts) allowed_.push_back(Lowered(name));
  if (std::ranges::find(allowed_, "*") != allowed_.end()) is_on_ = false;
}

bool HostCheck::Passes(std::string_view host) const {
  if (!is_on_ || host.empty()) return true;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end != std::string_view::npos &&
           IsAddress(std::string(host.substr(1, end - 1)), AF_INET6);
  }
  std::string name = Lowered(host.substr(0, host.find(':')));
  if (name.ends_with('.')) name.pop_back();  // a name that is whole
  return IsLocalName(name) || IsAddress(name, AF_INET) ||
         std::ranges::find(allowed_, name) != allowed_.end();
}

}  // namespace sluice::server
