#include "server/http/listen_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "sluice/error.hpp"

namespace sluice::server {
namespace {

// Connections that no loop has accepted yet; the kernel's own limit is 4096 too (somaxconn).
constexpr int kBacklog = 4096;
// Between the kernel and the peer: more of it would only hide how far a reader lags.
constexpr int kUnsentInKernel = 16 << 10;

[[noreturn]] void Throw(std::string parameter, const std::string& value, int error,
                        std::string allowed) {
  throw Error(ErrorCode::kUnavailable, std::move(parameter),
              value + " (" + std::generic_category().message(error) + ")", std::move(allowed));
}

// A descriptor that is closed unless it is taken.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void Set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

// Every connection has these from its listening socket. The last four notice a peer that vanished
// without a word, whether or not something was sent to it.
void SetTcpOptions(int fd, const HttpLimits& limits) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentInKernel);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limits.write_timeout.count()));
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
}

int NewSocket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

// A socket bound to it, or -1 and errno. SO_REUSEPORT would let another program of this user have
// the same port unnoticed: a socket without it has tried the port before.
int Bind(const addrinfo& at, bool is_shared) {
  for (const bool is_trial : {true, false}) {
    if (is_trial && is_shared) continue;
    Descriptor socket(NewSocket(at.ai_family));
    if (socket.get() < 0) return -1;
    Set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (!is_trial) Set(socket.get(), SOL_SOCKET, SO_REUSEPORT, 1);
    if (::bind(socket.get(), at.ai_addr, at.ai_addrlen) != 0) return -1;
    if (!is_trial) return socket.Take();
  }
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

}  // namespace

ListenSocket::ListenSocket(const ListenAddress& address, const HttpLimits& limits,
                           const ListenSocket* first) {
  if (address.unix_socket.empty()) {
    ListenAddress at = address;
    if (first != nullptr) at.port = first->port_;
    ListenAtPort(at, limits, first != nullptr);
  } else if (first == nullptr) {
    ListenAtPath(address.unix_socket);
  } else {
    fd_ = ::fcntl(first->fd_, F_DUPFD_CLOEXEC, 0);
    if (fd_ < 0) Throw("unix_socket", address.unix_socket, errno, "a descriptor for each thread");
  }
}

ListenSocket::~ListenSocket() { Close(); }

void ListenSocket::Close() {
  if (fd_ < 0) return;
  if (!path_.empty()) ::unlink(path_.c_str());
  ::close(std::exchange(fd_, -1));
}

void ListenSocket::ListenAtPort(const ListenAddress& address, const HttpLimits& limits,
                                bool is_shared) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0 || address.host.empty()) {
    throw Error(ErrorCode::kInvalidValue, "host",
                address.host + " (" + ::gai_strerror(failure) + ")",
                "an address or a name of this machine");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Descriptor socket(Bind(*at, is_shared));
    if (socket.get() >= 0) {
      SetTcpOptions(socket.get(), limits);
      if (::listen(socket.get(), kBacklog) == 0) {
        port_ = PortOf(socket.get());
        fd_ = socket.Take();
        return;
      }
    }
    error = errno;
  }
  if (error == EADDRNOTAVAIL) Throw("host", address.host, error, "an address of this machine");
  Throw("port", std::to_string(address.port), error, "a port that is free; 0 for any");
}

void ListenSocket::ListenAtPath(const std::string& path) {
  constexpr const char* kAllowed = "a path that is free, of at most 107 bytes";
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) Throw("unix_socket", path, ENAMETOOLONG, kAllowed);
  std::memcpy(name.sun_path, path.data(), path.size());
  const auto* const at = reinterpret_cast<const sockaddr*>(&name);

  Descriptor socket(NewSocket(AF_UNIX));
  if (socket.get() < 0) Throw("unix_socket", path, errno, kAllowed);
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) {
    // Left by a program that was killed, unless a server answers.
    const Descriptor trial(NewSocket(AF_UNIX));
    if (::connect(trial.get(), at, sizeof name) != 0 && errno == ECONNREFUSED) {
      ::unlink(path.c_str());
    }
  }
  // Only for the owner until the mode is set, whatever the umask.
  ::fchmod(socket.get(), 0600);
  if (::bind(socket.get(), at, sizeof name) != 0) Throw("unix_socket", path, errno, kAllowed);
  path_ = path;
  if (::chmod(path.c_str(), 0660) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    Throw("unix_socket", path, error, kAllowed);
  }
  fd_ = socket.Take();
}

}  // namespace sluice::server
