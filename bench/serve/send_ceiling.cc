#include "bench/serve/send_ceiling.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/serve/http_load.h"
#include "bench/serve/served_mock.h"

namespace sluice::bench {
namespace {

// Reads whatever comes, until it is killed.
[[noreturn]] void ReadAll(uint16_t port, int64_t sockets) {
  const int epoll = epoll_create1(0);
  for (int64_t i = 0; i < sockets; ++i) {
    const int fd = Connect({.port = port});
    if (fd < 0) _exit(1);
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
  static char buffer[1 << 16];
  for (;;) {
    epoll_event events[512];
    const int count = epoll_wait(epoll, events, 512, -1);
    for (int i = 0; i < count; ++i) {
      if (recv(events[i].data.fd, buffer, sizeof buffer, 0) <= 0) _exit(0);
    }
  }
}

}  // namespace

SendCeiling MeasureSends(int64_t sockets, int64_t bytes, std::chrono::nanoseconds step_time,
                         double seconds) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener, 4096) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error(std::strerror(errno));
  }
  const pid_t reader = fork();
  if (reader == 0) {
    PinToProcessor(kClientProcessor);
    ReadAll(ntohs(address.sin_port), sockets);
  }
  std::vector<int> peers;
  for (int64_t i = 0; i < sockets; ++i) {
    const int fd = accept(listener, nullptr, nullptr);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peers.push_back(fd);
  }
  close(listener);

  const ScopedPin pin(kServerProcessor);
  const std::string piece(static_cast<size_t>(bytes), 'x');
  SendCeiling result;
  timespec begin, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  const int64_t until = MonotonicNs() + static_cast<int64_t>(seconds * 1e9);
  auto next = std::chrono::steady_clock::now();
  while (MonotonicNs() < until) {
    next += step_time;
    std::this_thread::sleep_until(next);
    for (const int fd : peers) {
      if (send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) {
        throw std::runtime_error(std::strerror(errno));
      }
    }
    result.sends += sockets;
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  const double ns = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e9 +
                    static_cast<double>(end.tv_nsec - begin.tv_nsec);
  result.ns_a_send = ns / static_cast<double>(result.sends);
  kill(reader, SIGKILL);
  waitpid(reader, nullptr, 0);
  for (const int fd : peers) close(fd);
  return result;
}

}  // namespace sluice::bench
