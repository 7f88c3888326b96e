#include "cli/listen_check.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "cli/text.h"
#include "link/file_descriptor.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using link::FileDescriptor;

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

[[noreturn]] void RefuseAddress(const ServerOptions& options, int error) {
  const std::string port = Number(options.port);
  switch (error) {
    case EADDRINUSE:
      throw Error(ErrorCode::kUnavailable, "port", port + " (in use at " + options.host + ")",
                  "a port that is free; --port 0 takes any");
    case EACCES:
      throw Error(ErrorCode::kUnavailable, "port", port + " (" + std::strerror(error) + ")",
                  "a port that this user may have, from 1024 on");
    default:
      throw Error(ErrorCode::kUnavailable, "host",
                  Quoted(options.host) + " (" + std::strerror(error) + ")",
                  "an address of this machine");
  }
}

ListenPlace CheckAddress(const ServerOptions& options) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(options.host.c_str(), Number(options.port).c_str(), &hints, &list);
  if (error != 0) {
    throw Error(ErrorCode::kInvalidValue, "host",
                Quoted(options.host) + " (" + ::gai_strerror(error) + ")",
                "an address of this machine, or a name of it");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(list, ::freeaddrinfo);
  // The first one is what a server takes.
  const FileDescriptor socket(
      ::socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, list->ai_protocol));
  if (!socket.IsOpen()) RefuseAddress(options, errno);
  // Connections of one that has ended are no hindrance; one that listens is.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0) RefuseAddress(options, errno);
  const bool is_v6 = list->ai_family == AF_INET6 && options.host.find(':') != std::string::npos;
  return {.text = (is_v6 ? "[" + options.host + "]" : options.host) + ":" + Number(options.port),
          .is_local = IsLoopback(*list->ai_addr)};
}

ListenPlace CheckPath(const std::string& path) {
  const auto refuse = [&](ErrorCode code, const std::string& why, const std::string& allowed) {
    throw Error(code, "unix_socket", Quoted(path) + " (" + why + ")", allowed);
  };
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    refuse(ErrorCode::kInvalidValue, Number(path.size()) + " bytes",
           "a path of at most " + Number(sizeof address.sun_path - 1) + " bytes");
  }
  path.copy(address.sun_path, path.size());
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      refuse(ErrorCode::kInvalidValue, "a file", "a path without a file, or with an old socket");
    }
    const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      refuse(ErrorCode::kUnavailable, "somebody listens there", "a socket of nobody else");
    }
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse(ErrorCode::kInvalidValue, std::strerror(errno),
           "a path in a folder that can be written");
  }
  return {.text = "unix:" + path, .is_local = true};
}

}  // namespace

ListenPlace CheckCanListen(const ServerOptions& options) {
  return options.unix_socket.empty() ? CheckAddress(options) : CheckPath(options.unix_socket);
}

}  // namespace sluice::cli
