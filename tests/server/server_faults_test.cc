// What clients of a server see when its engine dies, stalls and comes back, and what becomes of the
// engine's places when the clients go away.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "sluice/engine_process.hpp"
#include "tests/server/exposition.h"
#include "tests/server/running.h"

// The linker puts these in front of the library's (--wrap).
static std::atomic<int64_t> clock_is_ahead = 0;  // seconds; the clock that people set
extern "C" int __real_clock_gettime(clockid_t clock, timespec* time);
extern "C" int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  const int result = __real_clock_gettime(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += clock_is_ahead;
  return result;
}
extern "C" time_t __real_time(time_t* time);
extern "C" time_t __wrap_time(time_t* time) {
  const time_t now = __real_time(nullptr) + clock_is_ahead;
  if (time != nullptr) *time = now;
  return now;
}

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kEndpointVariable[] = "SLUICE_TEST_ENGINE_LISTENS_ON";
constexpr char kPath[] = "/v1/completions";
constexpr int kStreamCount = 256;

// What the child does.
TEST(EngineChild, DISABLED_Serves) {
  const char* const listen = std::getenv(kEndpointVariable);
  ASSERT_NE(listen, nullptr);
  ScriptRunner runner(AlphabetScript(kStreamCount, milliseconds(10)));
  Engine engine(runner, Letters(), {.max_client_requests = kStreamCount});
  EngineServer server(engine, InfoOf(Letters(), kStreamCount), {.listen = listen});
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

std::vector<TestClient> BeginStreams(const RunningHttp& running, int count, int64_t tokens = 4000) {
  std::vector<TestClient> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(running.Connect());
    clients.back().Send(TestClient::Request("POST", kPath, Asking("a", tokens, kStreams)));
  }
  for (TestClient& client : clients) EXPECT_EQ(client.ReadHead().status, 200);
  return clients;
}

ReadResponse ReadRest(TestClient& client) {
  std::string body;
  while (client.ReadChunk(body)) {
  }
  return ResponseReader::Stream(body);
}

// Each has some letters in their order, an error, and an end.
void ExpectLost(std::vector<TestClient>& clients) {
  for (TestClient& client : clients) {
    const ReadResponse read = ReadRest(client);
    ASSERT_TRUE(read.error.has_value());
    EXPECT_EQ(read.error->type, "service_unavailable");
    EXPECT_TRUE(read.is_done);
    const std::string& text = read.choices.at(0).text;
    for (size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], static_cast<char>('a' + i % 26));
  }
}

TEST(ServerFaults, AKilledEngineEndsEveryStreamInWordsAndAnotherTakesItsPlace) {
  const std::string listen = LocalEndpoint();
  EngineProcess engine = StartEngine(listen);
  ServerOptions options;
  options.engines = {engine.endpoint()};
  options.stall_timeout = std::chrono::minutes(10);  // which is not what ends them
  const RunningHttp running(options);
  std::vector<TestClient> clients = BeginStreams(running, kStreamCount);
  TestClient whole = running.Connect();
  TestClient asks = running.Connect();
  EXPECT_EQ(asks.Get("/health").status, 200);

  const auto killed = Clock::now();
  ASSERT_EQ(kill(engine.pid(), SIGKILL), 0);
  ASSERT_TRUE(Becomes([&] { return asks.Get("/health").status == 503; }));
  const auto noticed = Clock::now() - killed;
  ExpectLost(clients);
  RecordProperty(
      "health_us",
      static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(noticed).count()));
  const TestResponse refused = whole.Post(kPath, Asking("a", 1, kStreams));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused["retry-after"], "");
  EXPECT_EQ(running.Get("/ready").status, 503);
  EXPECT_EQ(Exposition(running.Get("/metrics").body)["sluice_engine_up"], 0);

  engine = StartEngine(listen);
  ASSERT_TRUE(Becomes([&] { return asks.Get("/health").status == 200; }));
  const ReadResponse read = ResponseReader::Whole(running.Post(kPath, Asking("x", 3)).body);
  EXPECT_EQ(read.choices.at(0).text, "xyz");
  const Exposition metrics(running.Get("/metrics").body);
  EXPECT_EQ(metrics["sluice_choices_total{end=\"engine_lost\"}"], kStreamCount);
  EXPECT_EQ(metrics["sluice_requests_running"], 0);
  // Not a line for each stream.
  EXPECT_LE(running.lines().size(), 10u);
}

TEST(ServerFaults, IsHealthyWhileOneOfItsEnginesIs) {
  EngineProcess killed = StartEngine(LocalEndpoint());
  const AlphabetEngine stays(AlphabetScript(64, milliseconds(2)));
  ServerOptions options;
  options.engines = {killed.endpoint(), stays.endpoint()};
  const RunningHttp running(options);
  std::vector<TestClient> clients = BeginStreams(running, 8, 500);
  ASSERT_EQ(kill(killed.pid(), SIGKILL), 0);
  int lost = 0;
  for (TestClient& client : clients) {
    const ReadResponse read = ReadRest(client);
    EXPECT_TRUE(read.is_done);
    lost += read.error.has_value() ? 1 : 0;
    if (!read.error.has_value()) {
      EXPECT_EQ(read.choices.at(0).text.size(), 500u);
    }
  }
  EXPECT_EQ(lost, 4);  // those of the engine that died
  EXPECT_EQ(running.Get("/health").status, 200);
  EXPECT_EQ(running.Post(kPath, Asking("a", 1)).status, 200);
}

TEST(ServerFaults, AStalledEngineIsToldAndTakenUpWhenItGoesOn) {
  EngineProcess engine = StartEngine(LocalEndpoint());
  ServerOptions options;
  options.engines = {engine.endpoint()};
  options.stall_timeout = milliseconds(2000);
  const RunningHttp running(options);
  std::vector<TestClient> clients = BeginStreams(running, 8);
  ASSERT_EQ(kill(engine.pid(), SIGSTOP), 0);
  ExpectLost(clients);
  const TestResponse health = running.Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_TRUE(health.body.starts_with(R"({"status":"stalled","reason":"it has said nothing for )"))
      << health.body;
  ASSERT_EQ(kill(engine.pid(), SIGCONT), 0);
  EXPECT_TRUE(Becomes([&] { return running.Get("/health").status == 200; }));
  EXPECT_EQ(running.Post(kPath, Asking("a", 1)).status, 200);
}

// Every time that is waited for is measured with a clock that nobody sets.
TEST(ServerFaults, AClockThatJumpsChangesTheTimesThatAreToldAlone) {
  using std::chrono::system_clock;
  clock_is_ahead = 3600;
  const auto ahead = system_clock::now() - system_clock::from_time_t(__real_time(nullptr));
  clock_is_ahead = 0;
  if (ahead < std::chrono::minutes(30)) GTEST_SKIP() << "the clock is behind a library's walls";
  ServerOptions options;
  options.stall_timeout = std::chrono::minutes(10);
  const RunningHttp running(options, AlphabetScript(64, milliseconds(2)));
  TestClient idle = running.Connect();
  EXPECT_EQ(idle.Get("/health").status, 200);
  TestClient half = running.Connect();
  const std::string request = TestClient::Request("POST", kPath, Asking("a", 3));
  half.Send(request.substr(0, 30));
  std::vector<TestClient> streams = BeginStreams(running, 4, 500);
  for (const int64_t jump : {3600, -3600}) {
    clock_is_ahead = jump;
    const TestResponse response = running.Post(kPath, Asking("x", 3));
    EXPECT_EQ(response.status, 200);
    const size_t created = response.body.find("\"created\":") + 10;
    EXPECT_NEAR(std::strtod(response.body.c_str() + created, nullptr),
                static_cast<double>(__real_time(nullptr) + jump), 60);
    EXPECT_EQ(idle.Get("/health").status, 200);
  }
  half.Send(request.substr(30));
  EXPECT_EQ(half.Read().status, 200);
  for (TestClient& stream : streams) {
    const ReadResponse read = ReadRest(stream);
    EXPECT_FALSE(read.error.has_value());
    EXPECT_EQ(read.choices.at(0).text.size(), 500u);
  }
  clock_is_ahead = 0;
}

// What a log says of it, whose reader can do something about it; clients just wait.
TEST(ServerFaults, DescriptorsThatRunOutAreLoggedOnce) {
#if defined(__clang__) && defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "clang's check of a pointer to a vtable opens a pipe, and no descriptor is free";
#endif
  RunningHttp running;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int fd = dup(2); fd >= 0; fd = dup(2)) taken.push_back(fd);
  ASSERT_FALSE(taken.empty());
  close(taken.back());
  taken.pop_back();
  TestClient waits = running.Connect();  // has the last one
  const auto count = [&] {
    const std::vector<std::string> lines = running.lines();
    return std::ranges::count_if(lines, [](const std::string& line) {
      return line.starts_with("new connections wait: no file descriptor");
    });
  };
  const bool is_told = Becomes([&] { return count() > 0; });
  std::this_thread::sleep_for(milliseconds(1500));  // longer than a tick
  const auto told = count();
  for (const int fd : taken) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_told);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(waits.Get("/health").status, 200);
}

TEST(ServerFaults, ClientsThatGoAwayFreeEveryPlace) {
  constexpr int kClients = 1000;
  // A descriptor each, here and in the server.
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 3 * kClients) GTEST_SKIP() << "only " << files.rlim_max << " descriptors";
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 3 * kClients);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);

  ServerOptions options;
  options.threads = 2;
  RunningHttp running(options, AlphabetScript(2 * kClients, milliseconds(20)));
  std::vector<TestClient> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(running.Connect());
    // Every third one waits for a whole response.
    const std::string_view rest = i % 3 == 0 ? std::string_view() : kStreams;
    clients.back().Send(TestClient::Request("POST", kPath, Asking("a", 4000, rest)));
  }
  ASSERT_TRUE(Becomes([&] { return running.engine().counters().running == kClients; }));
  for (TestClient& client : clients) client.Reset();
  const auto gone = Clock::now();
  ASSERT_TRUE(Becomes([&] { return running.engine().counters().running == 0; }));
  RecordProperty(
      "free_ms",
      static_cast<int>(std::chrono::duration_cast<milliseconds>(Clock::now() - gone).count()));
  EXPECT_EQ(running.engine().counters().aborted, kClients);
  EXPECT_EQ(running.Get("/health").status, 200);
  ASSERT_TRUE(Becomes([&] {
    return Exposition(running.Get("/metrics").body)["sluice_choices_total{end=\"cancelled\"}"] ==
           kClients;
  }));
  const Exposition metrics(running.Get("/metrics").body);
  EXPECT_EQ(metrics["sluice_requests_running"], 0);
  EXPECT_EQ(metrics["sluice_disconnects_total"], kClients);
  EXPECT_EQ(metrics["sluice_http_requests_total{code=\"499\",route=\"/v1/completions\"}"], 334);
  EXPECT_LE(running.lines().size(), 10u);
}

}  // namespace
}  // namespace sluice::test
