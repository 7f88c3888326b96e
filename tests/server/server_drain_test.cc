// How a server ends: streams in flight go on or are told, connections close, and no thread stays.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "tests/server/exposition.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kPath[] = "/v1/completions";

TestClient BeginStream(const RunningHttp& running, int64_t tokens) {
  TestClient client = running.Connect();
  client.Send(TestClient::Request("POST", kPath, Asking("a", tokens, kStreams)));
  EXPECT_EQ(client.ReadHead().status, 200);
  return client;
}

std::string ReadRest(TestClient& client) {
  std::string body;
  while (client.ReadChunk(body)) {
  }
  return body;
}

int64_t Threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

TEST(ServerDrain, LetsWhatIsInFlightEndAndTakesNothingNew) {
  RunningHttp running({}, AlphabetScript(8, milliseconds(2)));
  TestClient stream = BeginStream(running, 500);
  TestClient whole = running.Connect();
  whole.Send(TestClient::Request("POST", kPath, Asking("b", 300)));
  ASSERT_TRUE(Becomes(
      [&] { return Exposition(running.Get("/metrics").body)["sluice_choices_running"] == 2; }));
  running.Drain();
  EXPECT_TRUE(Becomes([&] { return !running.Connect(); }));

  const ReadResponse read = ResponseReader::Stream(ReadRest(stream));
  EXPECT_EQ(read.choices.at(0).text.size(), 500u);
  EXPECT_EQ(read.choices.at(0).finish, "length");
  EXPECT_TRUE(read.is_done);
  EXPECT_EQ(ResponseReader::Whole(whole.Read().body).choices.at(0).text.size(), 300u);
  EXPECT_TRUE(stream.IsClosed());
  EXPECT_TRUE(whole.IsClosed());
  running.Join();
}

TEST(ServerDrain, SaysSoToWhoAsks) {
  RunningHttp running({}, AlphabetScript(8, milliseconds(2)));
  TestClient stream = BeginStream(running, 4000);
  // Their heads are on their way when the drain begins.
  TestClient health = running.Connect();
  TestClient late = running.Connect();
  const std::string asks_health = TestClient::Request("GET", "/health");
  const std::string asks_late = TestClient::Request("POST", kPath, Asking("a", 1));
  health.Send(asks_health.substr(0, 20));
  late.Send(asks_late.substr(0, 20));
  // Two round trips of the loop behind it: it has read them.
  for (int i = 0; i < 2; ++i) running.Get("/version");
  running.Drain();
  ASSERT_TRUE(Becomes([&] { return !running.Connect(); }));
  health.Send(asks_health.substr(20));
  late.Send(asks_late.substr(20));
  const TestResponse told = health.Read();
  EXPECT_EQ(told.status, 503);
  EXPECT_EQ(told.body, R"({"status":"draining"})");
  EXPECT_EQ(late.Read().status, 503);
}

TEST(ServerDrain, ASecondStopEndsTheRestWithAnError) {
  RunningHttp running({}, AlphabetScript(8, milliseconds(2)));
  TestClient stream = BeginStream(running, 4000);
  TestClient whole = running.Connect();
  whole.Send(TestClient::Request("POST", kPath, Asking("b", 4000)));
  ASSERT_TRUE(Becomes(
      [&] { return Exposition(running.Get("/metrics").body)["sluice_choices_running"] == 2; }));
  running.Drain();
  running.StopNow();
  const auto stopped = Clock::now();
  const ReadResponse read = ResponseReader::Stream(ReadRest(stream));
  ASSERT_TRUE(read.error.has_value());
  EXPECT_EQ(read.error->type, "service_unavailable");
  EXPECT_TRUE(read.is_done);
  EXPECT_EQ(whole.Read().status, 503);
  running.Join();
  EXPECT_LT(Clock::now() - stopped, ServerOptions().drain_timeout);
  EXPECT_TRUE(Becomes([&] { return running.engine().counters().running == 0; }));
}

TEST(ServerDrain, WaitsNoLongerThanItMay) {
  ServerOptions options;
  options.drain_timeout = milliseconds(50);
  RunningHttp running(options, AlphabetScript(8, milliseconds(5)));
  TestClient stream = BeginStream(running, 4000);
  running.Drain();
  const ReadResponse read = ResponseReader::Stream(ReadRest(stream));
  EXPECT_TRUE(read.error.has_value());
  EXPECT_TRUE(read.is_done);
  running.Join();
}

// A reader that takes nothing does not hold the end up.
TEST(ServerDrain, ASecondStopDoesNotWaitForReaders) {
  RunningHttp running({}, AlphabetScript(8));
  std::vector<TestClient> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(BeginStream(running, 4000));
  running.StopNow();
  const auto stopped = Clock::now();
  running.Join();
  EXPECT_LT(Clock::now() - stopped, ServerOptions().drain_timeout);
}

TEST(ServerDrain, ClosesIdleConnectionsAtOnce) {
  ServerOptions options;
  options.threads = 2;
  RunningHttp running(options);
  std::vector<TestClient> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(running.Connect());
    EXPECT_EQ(idle.back().Get("/version").status, 200);
  }
  running.Drain();
  running.Join();
  for (TestClient& client : idle) EXPECT_TRUE(client.IsClosed());
}

TEST(ServerDrain, LeavesNoThreadBehind) {
  AlphabetEngine engine;
  const int64_t before = Threads();
  {
    ServerOptions options;
    options.engines = {engine.endpoint()};
    options.port = 0;
    options.threads = 3;
    options.encode_threads = 2;
    Server server(LettersText(), options);
    std::stop_source stop;
    std::thread runs([&] { server.Run(stop.get_token(), {}); });
    EXPECT_EQ(TestClient(server.port()).Get("/health").status, 200);
    stop.request_stop();
    runs.join();
    const Server never_run(LettersText(), options);
  }
  // A thread that was joined may still be listed for a moment.
  EXPECT_TRUE(Becomes([&] { return Threads() == before; })) << Threads() << " " << before;
}

TEST(ServerDrain, AStopThatWasAskedForBeforeIsTakenAtOnce) {
  AlphabetEngine engine;
  ServerOptions options;
  options.engines = {engine.endpoint()};
  options.port = 0;
  Server server(LettersText(), options);
  std::stop_source stop;
  stop.request_stop();
  server.Run(stop.get_token(), {});
}

}  // namespace
}  // namespace sluice::test
