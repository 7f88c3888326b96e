// A client and an engine in a process of its own, which is killed, stopped, and comes back.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "sluice/engine_process.hpp"
#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"
#include "tests/link/collected.h"
#include "tests/link/letters.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kEndpointVariable[] = "SLUICE_TEST_ENGINE_LISTENS_ON";
constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz";
constexpr int kRequests = 256;
constexpr milliseconds kPatience{60'000};

// What the child does: an engine that gives a letter a millisecond to each request.
TEST(EngineChild, DISABLED_Serves) {
  const char* const listen = std::getenv(kEndpointVariable);
  ASSERT_NE(listen, nullptr);
  ScriptRunner runner({.vocab = 27,
                       .tokens = Ids(kLetters),
                       .max_requests = kRequests,
                       .step_time = milliseconds(1)});
  Engine engine(runner, Letters(), {.max_client_requests = kRequests});
  EngineServer server(engine, InfoOf(Letters(), kRequests), {.listen = listen});
  std::cout << "listening on " << server.endpoint() << std::endl;
  server.Run(std::stop_token());
}

EngineProcess StartEngine(const std::string& listen) {
  setenv(kEndpointVariable, listen.c_str(), 1);
  const std::vector<std::string> command = {"/proc/self/exe",
                                            "--gtest_filter=EngineChild.DISABLED_Serves",
                                            "--gtest_also_run_disabled_tests"};
  return EngineProcess(command);
}

// kRequests of them, in the middle of their texts.
struct Streams {
  explicit Streams(const RemoteClientOptions& options = {})
      : listen(LocalEndpoint()), engine(StartEngine(listen)) {
    const std::string endpoints[] = {engine.endpoint()};
    client = ConnectClient(endpoints, Letters(), options);
  }
  void Submit(int count, int64_t max_tokens) {
    for (int i = 0; i < count; ++i) {
      ClientRequest request = Asks(max_tokens);
      request.prompt = {i % 26};
      ids.push_back(client->Submit(std::move(request)));
      got.Expect(ids.back(), OutputMode::kDelta);
    }
    EXPECT_TRUE(Until([&] {
      return std::all_of(ids.begin(), ids.end(),
                         [&](RequestId id) { return !got[id].ids.empty(); });
    }));
  }
  bool Until(const std::function<bool()>& is_so) {
    const auto deadline = Clock::now() + kPatience;
    bool is_it = is_so();
    for (; !is_it && Clock::now() < deadline; is_it = is_so()) {
      got.Add(client->Poll(milliseconds(10)));
    }
    return is_it;
  }
  bool AreDone() {
    return Until([&] { return client->live_requests() == 0; });
  }
  // Each has some letters in their order, and this end.
  void ExpectAll(GenerationEnd end, std::string_view why = "") {
    for (size_t i = 0; i < ids.size(); ++i) {
      const Collected& all = got[ids[i]];
      EXPECT_EQ(all.end, end);
      EXPECT_NE(all.message.find(why), std::string::npos) << all.message;
      for (size_t n = 0; n < all.text.size(); ++n) {
        ASSERT_EQ(all.text[n], kLetters[(i + n) % 26]) << all.text;
      }
    }
  }

  std::string listen;
  EngineProcess engine;
  std::unique_ptr<Client> client;
  std::vector<RequestId> ids;
  Collectors got;
};

TEST(RemoteProcess, AKilledEngineEndsEveryStreamAndAnotherTakesItsPlace) {
  Streams streams({.stall_timeout = 4 * kPatience});  // which is not what ends them
  streams.Submit(kRequests, 1'000'000);
  ASSERT_EQ(kill(streams.engine.pid(), SIGKILL), 0);
  ASSERT_TRUE(streams.AreDone());
  streams.ExpectAll(GenerationEnd::kEngineLost, "connection was lost");
  EXPECT_EQ(streams.client->health(), EngineHealth::kConnecting);
  EXPECT_THROW(streams.client->Submit(Asks()), Error);

  streams.engine = StartEngine(streams.listen);
  ASSERT_TRUE(streams.Until([&] { return streams.client->health() == EngineHealth::kReady; }));
  streams.ids.clear();
  streams.Submit(kRequests, 30);
  ASSERT_TRUE(streams.AreDone());
  streams.ExpectAll(GenerationEnd::kLength);
}

TEST(RemoteProcess, AStoppedEngineLosesNothingWhenItGoesOnInTime) {
  Streams streams;
  streams.Submit(kRequests, 300);
  ASSERT_EQ(kill(streams.engine.pid(), SIGSTOP), 0);
  const auto stopped = Clock::now();
  while (Clock::now() - stopped < milliseconds(700)) {
    streams.got.Add(streams.client->Poll(milliseconds(20)));
  }
  EXPECT_EQ(streams.client->live_requests(), kRequests);
  ASSERT_EQ(kill(streams.engine.pid(), SIGCONT), 0);
  ASSERT_TRUE(streams.AreDone());
  streams.ExpectAll(GenerationEnd::kLength);
  for (const RequestId id : streams.ids) EXPECT_EQ(streams.got[id].output_tokens, 300);
}

TEST(RemoteProcess, AStoppedEngineIsGivenUpAndTakenUpWhenItGoesOn) {
  Streams streams({.stall_timeout = milliseconds(2000)});
  streams.Submit(kRequests, 1'000'000);
  ASSERT_EQ(kill(streams.engine.pid(), SIGSTOP), 0);
  ASSERT_TRUE(streams.AreDone());
  streams.ExpectAll(GenerationEnd::kEngineLost, "said nothing for 2000 ms");
  EXPECT_EQ(streams.client->health(), EngineHealth::kStalled);
  ASSERT_EQ(kill(streams.engine.pid(), SIGCONT), 0);
  ASSERT_TRUE(streams.Until([&] { return streams.client->health() == EngineHealth::kReady; }));
  // It hears that nobody waits, and its places are free again.
  streams.ids.clear();
  ASSERT_TRUE(streams.Until([&] {
    try {
      streams.ids.push_back(streams.client->Submit(Asks(5)));
      streams.got.Expect(streams.ids.back(), OutputMode::kDelta);
    } catch (const Error&) {
    }
    return streams.ids.size() == kRequests;
  }));
  ASSERT_TRUE(streams.AreDone());
  for (const RequestId id : streams.ids) EXPECT_EQ(streams.got[id].text, "abcde");
}

TEST(RemoteProcess, AFrontendThatPausesGetsAllOfIt) {
  Streams streams({.credits = 2});
  streams.Submit(kRequests, 500);
  std::this_thread::sleep_for(milliseconds(800));  // the engine is done by now
  ASSERT_TRUE(streams.AreDone());
  streams.ExpectAll(GenerationEnd::kLength);
  for (const RequestId id : streams.ids) EXPECT_EQ(streams.got[id].text.size(), 500u);
  const ClientCounters& counters = streams.client->counters();
  EXPECT_EQ(counters.tokens, 500 * kRequests);
  EXPECT_EQ(counters.gaps + counters.resets + counters.repeated_frames, 0);
}

}  // namespace
}  // namespace sluice::test
