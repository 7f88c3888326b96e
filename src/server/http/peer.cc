#include "server/http/peer.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <string_view>

namespace sluice::server {
namespace {

uint64_t HashOf(const void* bytes, size_t size) {
  const uint64_t hash = std::hash<std::string_view>()({static_cast<const char*>(bytes), size});
  return hash == 0 ? 1 : hash;
}

}  // namespace

uint64_t PeerOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 ? PeerOf(name) : 0;
}

uint64_t PeerOf(const sockaddr_storage& name) {
  if (name.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &name, sizeof v4);
    if (ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) return 0;
    return HashOf(&v4.sin_addr, sizeof v4.sin_addr);
  }
  if (name.ss_family != AF_INET6) return 0;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &name, sizeof v6);
  const unsigned char* const bytes = v6.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) return 0;
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return bytes[12] == IN_LOOPBACKNET ? 0 : HashOf(bytes + 12, 4);
  }
  return HashOf(bytes, 8);
}

}  // namespace sluice::server
