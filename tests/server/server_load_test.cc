// Peers that are slow by the thousand, and prompts by the megabyte, at the
// limits that users have: what becomes of them, and what others notice. A
// minute; figures are printed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>

#include "tests/server/exposition.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr char kPath[] = "/v1/completions";

bool HasDescriptors(rlim_t count) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < count) return false;
  files.rlim_cur = std::max(files.rlim_cur, count);
  return ::setrlimit(RLIMIT_NOFILE, &files) == 0;
}

int64_t ResidentMebibytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE) >> 20;
}

// What long bodies may take: the budget of all of them, and for the one that is read, which is
// there as its text, as JSON and as a prompt, with what the allocator keeps of each, half as much
// again as the eight times its size that it takes.
int64_t MostMebibytes(size_t body_bytes) {
  return static_cast<int64_t>(HttpLimits().inflight_bytes + 12 * body_bytes) >> 20;
}

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// Streams that are read as they come. The pauses of each are kept, until they
// are asked for.
class LiveStreams {
 public:
  LiveStreams(const RunningHttp& running, int count, int64_t tokens) {
    for (int i = 0; i < count; ++i) {
      clients_.push_back(running.Connect());
      clients_.back().Send(TestClient::Request("POST", kPath, Asking("a", tokens, kStreams)));
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { Read(stop); });
  }

  // Of the time since it was asked for last: the one that 99 of 100 are no
  // longer than, and the longest.
  struct Pauses {
    double p99 = 0;
    double longest = 0;
    size_t count = 0;
  };
  Pauses TakePauses() {
    std::vector<double> pauses;
    {
      const std::lock_guard lock(mutex_);
      pauses.swap(pauses_);
    }
    if (pauses.empty()) return {};
    std::sort(pauses.begin(), pauses.end());
    return {pauses[pauses.size() * 99 / 100], pauses.back(), pauses.size()};
  }
  int ended() const { return ended_; }

 private:
  void Read(const std::stop_token& stop) {
    std::vector<pollfd> waits;
    for (const TestClient& client : clients_) waits.push_back({client.fd(), POLLIN, 0});
    std::vector<Clock::time_point> last(waits.size());
    std::array<char, 65536> bytes;
    while (!stop.stop_requested()) {
      if (::poll(waits.data(), waits.size(), 100) <= 0) continue;
      const Clock::time_point now = Clock::now();
      for (size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].revents == 0) continue;
        if (::recv(waits[i].fd, bytes.data(), bytes.size(), 0) <= 0) {
          waits[i].fd = -1;
          ++ended_;
          continue;
        }
        const std::lock_guard lock(mutex_);
        if (last[i] != Clock::time_point()) pauses_.push_back(Milliseconds(now - last[i]));
        last[i] = now;
      }
    }
  }

  std::vector<TestClient> clients_;
  std::mutex mutex_;
  std::vector<double> pauses_;
  std::atomic<int> ended_ = 0;
  std::jthread thread_;
};

// A header byte every five seconds, or a body at ten bytes a second.
TEST(ServerLoad, TwoThousandSlowPeersAreEndedAndOthersDoNotNotice) {
  constexpr size_t kHeads = 2000;
  constexpr size_t kBodies = 100;
  if (!HasDescriptors(3 * kHeads)) GTEST_SKIP() << "too few descriptors";
  const RunningHttp running;
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
  std::vector<TestClient> slow;
  const Clock::time_point begin = Clock::now();
  // Until then none is late, however slow the machine is, and later no answer
  // is lost to a reset.
  const Clock::time_point none_is_late = begin + HttpLimits().header_timeout - milliseconds(500);
  for (size_t i = 0; i < kHeads + kBodies; ++i) {
    slow.push_back(running.Connect());
    slow.back().Send(i < kHeads ? head.substr(0, 1)
                                : head +
                                      "no\r\nContent-Type: application/json\r\n"
                                      "Content-Length: 100000\r\n\r\n");
  }
  std::atomic<int> answers = 0;
  std::jthread healthy([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const TestResponse response = running.Post(kPath, Asking("a", 5));
      ASSERT_EQ(response.status, 200);
      ASSERT_EQ(ResponseReader::Whole(response.body).choices.at(0).text, "abcde");
      ++answers;
    }
  });
  for (int second = 1; second <= 9; ++second) {
    std::this_thread::sleep_until(begin + seconds(second));
    const bool sends_heads = second % 5 == 0;
    for (size_t i = sends_heads ? 0 : kHeads; i < slow.size(); ++i) {
      if (Clock::now() > none_is_late) break;
      slow[i].Send(i < kHeads ? head.substr(1, 1) : "0123456789");
    }
  }
  const double late = Exposition(running.Get("/metrics").body)["sluice_http_timeouts_total"];
  if (Clock::now() < none_is_late) EXPECT_EQ(late, 0);
  for (TestClient& client : slow) ASSERT_EQ(client.Read().status, 408);
  const double took = Milliseconds(Clock::now() - begin) / 1000;
  healthy.request_stop();
  healthy.join();
  std::printf(
      "%zu slow peers were ended %.1f s behind their first byte; %d "
      "requests of others\n",
      slow.size(), took, answers.load());
  EXPECT_GT(answers, 100);  // 27,000 on two cores with other work
  EXPECT_EQ(Exposition(running.Get("/metrics").body)["sluice_http_timeouts_total"],
            static_cast<double>(slow.size()));
  EXPECT_TRUE(
      Becomes([&] { return Exposition(running.Get("/metrics").body)["sluice_connections"] == 1; }));
}

// The longest bodies that a server takes, from forty connections at once: most
// are refused, none is encoded, and a short one is answered while they come.
TEST(ServerLoad, FortyLongBodiesLeaveRoomForAShortOne) {
  constexpr int kClients = 40;
  const RunningHttp running;
  const std::string prompt(30'000'000, 'a');
  const std::string request = TestClient::Request("POST", kPath, Asking(prompt, 1));
  const int64_t before = ResidentMebibytes();
  std::atomic<int64_t> most = before;
  std::atomic<int> too_long = 0, no_room = 0, broken = 0;
  std::vector<double> times;
  {
    std::jthread watch([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        most = std::max(most.load(), ResidentMebibytes());
        std::this_thread::sleep_for(milliseconds(5));
      }
    });
    std::atomic<int> left = kClients;
    std::vector<std::jthread> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.emplace_back([&] {
        TestClient client = running.Connect();
        client.Send(request);
        const int status = client.Read().status;
        // A reset may overtake the answer to one that still sends.
        ++(status == 400 ? too_long : status == 503 ? no_room : broken);
        --left;
      });
    }
    const std::string chat = std::string(20'000, ' ') + Asking("a", 1);
    do {
      const Clock::time_point begin = Clock::now();
      const TestResponse response = running.Post(kPath, chat);
      EXPECT_EQ(response.status, 200) << response.body;
      times.push_back(Milliseconds(Clock::now() - begin));
    } while (left > 0);
  }
  std::sort(times.begin(), times.end());
  std::printf(
      "40 bodies of 30 MB: %d too long, %d without room, %d broken off; %zu "
      "short requests "
      "of another, %.1f ms at the median and %.1f at most; %lld MiB more\n",
      too_long.load(), no_room.load(), broken.load(), times.size(), times[times.size() / 2],
      times.back(), static_cast<long long>(most - before));
  EXPECT_EQ(too_long + no_room + broken, kClients);
  EXPECT_GT(too_long, 0);
  EXPECT_LT(most - before,
            MostMebibytes(prompt.size()));  // 1223 without a budget
  EXPECT_LT(times.back(), 10'000);          // 100 with other work on the two cores
}

// 512 streams, and beside them 16 bodies of 32 MiB at once, then 32 prompts of
// 44,000 tokens.
TEST(ServerLoad, LongPromptsDoNotHoldUpStreams) {
  constexpr int kStreamCount = 512;
  constexpr size_t kBodies = 16;
  constexpr size_t kPrompts = 32;
  constexpr int64_t kContext = 1 << 16;
  if (!HasDescriptors(4096)) GTEST_SKIP() << "too few descriptors";
  ScriptOptions script = AlphabetScript(1024, milliseconds(20));
  script.context = kContext;
  script.max_step_tokens = kContext;
  RunningHttp running({}, script);
  LiveStreams streams(running, kStreamCount, kContext - 1000);
  ASSERT_TRUE(Becomes([&] { return running.engine().counters().running == kStreamCount; }));
  streams.TakePauses();
  std::this_thread::sleep_for(seconds(3));
  const LiveStreams::Pauses quiet = streams.TakePauses();

  const size_t limit = ServerOptions().http.body_bytes;
  // Once for all clients: the memory that is measured is the server's.
  const std::string large =
      TestClient::Request("POST", kPath, Asking(std::string(limit - 100, 'a'), 1));
  const std::string long_prompt =
      TestClient::Request("POST", kPath, Asking(std::string(44'000, 'a'), 4));
  const int64_t before = ResidentMebibytes();
  std::atomic<int64_t> most = before;
  std::jthread watch([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      most = std::max(most.load(), ResidentMebibytes());
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  std::atomic<int> refused = 0;
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> clients;
    for (size_t i = 0; i < kBodies + kPrompts; ++i) {
      clients.emplace_back([&, i] {
        TestClient client = running.Connect();
        client.Send(i < kBodies ? large : long_prompt);
        // The last one waits for the encoding of all the others.
        pollfd waits{client.fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&waits, 1, 600'000), 1);
        const TestResponse response = client.Read();
        // Too long for the context, or no room for it with the others; a reset
        // may overtake that.
        const bool is_refused =
            response.status == 0 || response.status == 503 ||
            (response.status == 400 && ErrorOf(response).code == "context_length_exceeded");
        if (i < kBodies && is_refused) ++refused;
        if (i >= kBodies && response.status == 200) ++answered;
      });
    }
  }
  const LiveStreams::Pauses loaded = streams.TakePauses();
  watch.request_stop();
  watch.join();
  EXPECT_EQ(refused, static_cast<int>(kBodies));
  EXPECT_EQ(answered, static_cast<int>(kPrompts));
  EXPECT_EQ(streams.ended(), 0);
  std::printf(
      "between tokens of %d streams: p99 %.1f ms, at most %.1f ms; "
      "beside %zu bodies of %zu MiB "
      "and "
      "%zu prompts of 44,000 tokens p99 %.1f ms, at most %.1f ms; %lld "
      "MiB more\n",
      kStreamCount, quiet.p99, quiet.longest, kBodies, limit >> 20, kPrompts, loaded.p99,
      loaded.longest, static_cast<long long>(most - before));
  EXPECT_GT(loaded.count, 1000u);
  // To encode one of the bodies takes some 2.5 s, which every stream would wait
  // for on its loop. On two cores with nothing else to do it is 33 ms without
  // them and 40 with: the aim is twice. Twenty times is a machine with other
  // work, and still less than a body takes on one that is as slow.
  EXPECT_LT(loaded.p99, 20 * std::max(quiet.p99, 50.0));
  EXPECT_LT(most - before, MostMebibytes(limit));  // 600 without a budget
}

}  // namespace
}  // namespace sluice::test
