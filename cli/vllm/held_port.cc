#include "cli/vllm/held_port.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace sluice::cli {

HeldPort::HeldPort(const std::string& address)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in bound = {};
  bound.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &bound.sin_addr);
  socklen_t size = sizeof bound;
  auto* const its = reinterpret_cast<sockaddr*>(&bound);
  const int yes = 1;
  if (!socket_.IsOpen() ||
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket_.get(), its, size) != 0 || ::getsockname(socket_.get(), its, &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "a port for the engine");
  }
  number_ = ntohs(bound.sin_port);
}

}  // namespace sluice::cli
