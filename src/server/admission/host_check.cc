#include "server/admission/host_check.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

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

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const in_addr_t ip = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
    return ip >> 24 == IN_LOOPBACKNET;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& ip = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || (IN6_IS_ADDR_V4MAPPED(&ip) && ip.s6_addr[12] == 127);
}

// Whether a server that listens at `host` listens at loopback addresses alone. The name is resolved
// as the listener resolves it, because 127.1, 0:0::1 and ::ffff:127.0.0.1 are loopback addresses
// too.
bool IsLoopback(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return IsLocalName(Lowered(host));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(first, ::freeaddrinfo);
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    if (!IsLoopback(*at->ai_addr)) return false;
  }
  return true;
}

// "", or a colon and a port.
bool IsPort(std::string_view text) {
  return text.empty() ||
         (text.front() == ':' && text.size() <= 6 &&
          std::ranges::all_of(text.substr(1), [](char c) { return c >= '0' && c <= '9'; }));
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
    return end != std::string_view::npos && IsPort(host.substr(end + 1)) &&
           IsAddress(std::string(host.substr(1, end - 1)), AF_INET6);
  }
  const size_t colon = std::min(host.find(':'), host.size());
  if (!IsPort(host.substr(colon))) return false;
  std::string name = Lowered(host.substr(0, colon));
  if (name.ends_with('.')) name.pop_back();  // a name that is whole
  return IsLocalName(name) || IsAddress(name, AF_INET) ||
         std::ranges::find(allowed_, name) != allowed_.end();
}

}  // namespace sluice::server
