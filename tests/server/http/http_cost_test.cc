// What a token costs beside a bare send() on the same sockets, and what a connection takes of
// memory: printed, and far from the bar on any machine that is not overloaded.
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>

#include "tests/server/http/http_test.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

const std::string kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

uint16_t PortOf(int fd, decltype(::getsockname)* of) {
  sockaddr_in name{};
  socklen_t size = sizeof name;
  return of(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 ? ntohs(name.sin_port) : 0;
}

double CpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

class HttpCost : public HttpTest {
 protected:
  // Every exchange begins a stream.
  void StreamAll() {
    handler.handle = [this](Exchange& exchange) {
      exchange.Begin({.content_type = "text/event-stream"});
      exchanges.push_back(&exchange);
      return std::make_unique<LoggedAnswer>(log);
    };
  }
  std::vector<Exchange*> exchanges;
};

TEST_F(HttpCost, OfATokenIsThatOfItsSend) {
  constexpr size_t kStreams = 256;
  constexpr size_t kToken = 250;  // an event of a stream of /v1/chat/completions
  Listen();
  StreamAll();
  std::vector<Peer> peers;
  std::vector<int> sockets;  // the server's
  for (size_t i = 0; i < kStreams; ++i) {
    peers.push_back(Connect());
    peers.back().Send(kRequest);
    ASSERT_TRUE(Until([&] { return exchanges.size() > i; }));
  }
  std::map<uint16_t, int> by_peer;
  for (int fd = 3; fd < 4096; ++fd) {
    if (PortOf(fd, ::getsockname) == listener->port()) by_peer[PortOf(fd, ::getpeername)] = fd;
  }
  for (const Peer& peer : peers) sockets.push_back(by_peer.at(PortOf(peer.fd(), ::getsockname)));

  const std::string piece(kToken, 'x');
  const std::string bare = "000000fa\r\n" + piece + "\r\n";
  const auto drain = [&] {
    char bytes[4096];
    for (const Peer& peer : peers) {
      while (::recv(peer.fd(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
    }
  };
  const auto flush = [&] {
    for (Exchange* const exchange : exchanges) {
      exchange->stream().append(piece);
      exchange->Flush();
    }
  };
  const auto send = [&] {
    for (const int fd : sockets) {
      (void)::send(fd, bare.data(), bare.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  };
  std::vector<double> costs[2];
  constexpr int kRounds = 400;
  for (int round = -10; round < kRounds / kSlowdown; ++round) {
    for (const int turn : {0, 1}) {
      const int which = (round + turn) & 1;  // each is the first one as often as the second
      const double begin = CpuSeconds();
      which == 0 ? flush() : send();
      const double cost = CpuSeconds() - begin;
      drain();
      if (round >= 0) costs[which].push_back(cost);
    }
  }
  // Of the cheaper half of the rounds: the others paid for interrupts and for caches that were
  // taken.
  double sum[2] = {0, 0};
  for (const int which : {0, 1}) {
    std::sort(costs[which].begin(), costs[which].end());
    costs[which].resize(costs[which].size() / 2);
    for (const double cost : costs[which]) sum[which] += cost;
  }
  const double tokens = static_cast<double>(kStreams * costs[0].size());
  const double share = sum[1] / sum[0];
  std::printf(
      "%zu streams, %zu bytes: %.0f tokens per CPU-second through Flush, %.0f through a "
      "bare send(): %.1f %%\n",
      kStreams, bare.size(), tokens / sum[0], tokens / sum[1], 100 * share);
  if (kSlowdown == 1) {
    EXPECT_GT(share, 0.6);  // 0.92 to 0.94 on a quiet core
  }
}

TEST_F(HttpCost, OfAConnectionIsLittleMemory) {
  constexpr size_t kConnections = 10'000;
  Listen();
  // The other ends are in a process of their own: a process has 20,000 descriptors here.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const auto begin_child = [&](size_t requests) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    std::vector<Peer> peers;
    for (size_t i = 0; i < kConnections; ++i) {
      peers.push_back(Connect());
      for (size_t sent = 0; sent < requests; ++sent) {
        (void)::send(peers.back().fd(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
      }
    }
    (void)!::write(ready[1], "", 1);
    ::pause();
    ::_exit(0);
  };
  const auto end_child = [&](pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(Until([&] { return listener->connections() == 0; }));
  };
  const auto per_connection = [](size_t before) {
    return static_cast<double>(ResidentBytes() - before) / kConnections / 1024;
  };
  handler.handle = [](Exchange& exchange) {
    exchange.Respond({.body = "ok"});
    return nullptr;
  };
  handler.seen.reserve(2 * kConnections);
  EchoHandler* const echo = &handler;
  const size_t before = ResidentBytes();
  const pid_t idle = begin_child(1);
  const auto all_seen = [&] {
    return counters.bytes_in >= static_cast<int64_t>(kConnections * kRequest.size());
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!all_seen() && std::chrono::steady_clock::now() < end) {
    RunFor(milliseconds(10));
    echo->seen.clear();
  }
  ASSERT_TRUE(all_seen());
  EXPECT_EQ(listener->connections(), static_cast<int64_t>(kConnections));
  const double idle_kib = per_connection(before);
  end_child(idle);

  StreamAll();
  exchanges.reserve(kConnections);
  const pid_t streaming = begin_child(1);
  while (exchanges.size() < kConnections && std::chrono::steady_clock::now() < end) {
    RunFor(milliseconds(10));
    echo->seen.clear();
  }
  ASSERT_EQ(exchanges.size(), kConnections);
  for (int token = 0; token < 5; ++token) {
    for (Exchange* const exchange : exchanges) {
      exchange->stream().append(250, 'x');
      exchange->Flush();
    }
  }
  const double stream_kib = per_connection(before);
  end_child(streaming);
  ::close(ready[0]);
  ::close(ready[1]);
  std::printf("%zu connections: %.2f KiB each while idle, %.2f KiB while they stream\n",
              kConnections, idle_kib, stream_kib);
  if (kSlowdown == 1) {
    EXPECT_LT(idle_kib, 4);     // 1.20
    EXPECT_LT(stream_kib, 12);  // 1.90; with an Answer and its text it must be 24 at most
  }
}

}  // namespace
}  // namespace sluice::test
