// /metrics of a server at work: what it tells is what its clients were told.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "sluice/version.hpp"
#include "tests/server/exposition.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

constexpr char kCompletionsPath[] = "/v1/completions";

TEST(ServerMetrics, CountWhatUsagesSay) {
  ServerOptions options;
  options.threads = 2;
  const RunningHttp running(options);
  const Exposition before(running.Get("/metrics").body);
  ReadUsage sum;
  for (int i = 0; i < 24; ++i) {
    const std::string_view rest = i % 3 == 0   ? R"(,"stream":true,"stream_options":)"
                                                 R"({"include_usage":true})"
                                  : i % 3 == 1 ? R"(,"n":3)"
                                               : R"(,"stop":"h","foo":1)";
    const TestResponse response = running.Post(kCompletionsPath, Asking("abc", 1 + i, rest));
    ASSERT_EQ(response.status, 200) << response.body;
    const ReadResponse read =
        i % 3 == 0 ? ResponseReader::Stream(response.body) : ResponseReader::Whole(response.body);
    sum.prompt += read.usage->prompt;
    sum.completion += read.usage->completion;
  }
  running.Get("/nowhere");
  const TestResponse text = running.Get("/metrics");
  EXPECT_EQ(text["content-type"], "text/plain; version=0.0.4; charset=utf-8");
  const Exposition after(text.body);
  after.ExpectBehind(before);
  EXPECT_EQ(after["sluice_prompt_tokens_total"], static_cast<double>(sum.prompt));
  EXPECT_EQ(after["sluice_generation_tokens_total"], static_cast<double>(sum.completion));
  EXPECT_EQ(after["sluice_requests_total"], 24);
  EXPECT_EQ(after["sluice_requests_running"], 0);
  EXPECT_EQ(after["sluice_unknown_fields_total"], 8);
  EXPECT_EQ(after["sluice_engine_up"], 1);
  EXPECT_EQ(after["sluice_e2e_request_latency_seconds_count"], 24);
  EXPECT_EQ(after["sluice_choices_total{end=\"length\"}"] +
                after["sluice_choices_total{end=\"stop_string\"}"],
            8 + 24 + 8);
  EXPECT_EQ(after["sluice_http_requests_total{code=\"200\",route=\"/v1/completions\"}"], 24);
  EXPECT_EQ(after["sluice_http_requests_total{code=\"404\",route=\"other\"}"], 1);
  EXPECT_EQ(after["sluice_http_requests_total{code=\"200\",route=\"/metrics\"}"], 1);
  EXPECT_EQ(after["sluice_build_info{version=\"" + std::string(kVersionString) + "\"}"], 1);
  EXPECT_GT(after["sluice_write_bytes_total"], 1000);
}

TEST(ServerMetrics, TellWhoWaitsAndWhatNobodyGot) {
  const AlphabetEngine engine(AlphabetScript(1, milliseconds(2)), {.listen = LocalEndpoint()}, 3);
  ServerOptions options;
  options.engines = {engine.endpoint()};
  const RunningHttp running(options);
  const auto metrics = [&] { return Exposition(running.Get("/metrics").body); };
  TestClient whole = running.Connect();
  whole.Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 4000)));
  ASSERT_TRUE(Becomes([&] { return metrics()["sluice_link_tokens_total"] > 0; }));
  std::vector<TestClient> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(running.Connect());
    waiting.back().Send(TestClient::Request("POST", kCompletionsPath, Asking("b", 4000, kStreams)));
  }
  ASSERT_TRUE(Becomes([&] { return metrics()["sluice_choices_running"] == 4; }));
  EXPECT_EQ(metrics()["sluice_requests_waiting"], 3);
  EXPECT_EQ(metrics()["sluice_tokens_discarded_total{cause=\"disconnect\"}"], 0);

  // The next one begins when the first has gone.
  whole.Reset();
  ASSERT_TRUE(Becomes([&] { return metrics()["sluice_requests_waiting"] == 2; }));
  for (TestClient& client : waiting) client.Reset();
  ASSERT_TRUE(Becomes([&] { return metrics()["sluice_abort_latency_steps_count"] == 4; }));
  const Exposition after = metrics();
  EXPECT_EQ(after["sluice_requests_waiting"], 0);
  EXPECT_EQ(after["sluice_requests_running"], 0);
  EXPECT_EQ(after["sluice_stop_hold_bytes"], 0);
  EXPECT_EQ(after["sluice_detok_invalid_bytes_total"], 0);
  EXPECT_EQ(after["sluice_tokens_discarded_total{cause=\"error\"}"], 0);
  EXPECT_GE(after["sluice_link_rtt_seconds_count"], 1);
}

// The frontend finds a stop behind which the engine has gone on.
TEST(ServerMetrics, TellOfTokensBehindAStop) {
  ServerOptions options;
  options.stop_at = StopAt::kFrontend;
  const RunningHttp running(options);
  for (int i = 0; i < 10; ++i) {
    const ReadResponse read = ResponseReader::Whole(
        running.Post(kCompletionsPath, Asking("a", 4000, R"(,"stop":"c")")).body);
    EXPECT_EQ(read.choices.at(0).text, "ab");
  }
  ASSERT_TRUE(Becomes([&] {
    return Exposition(running.Get("/metrics").body)["sluice_abort_latency_steps_count"] == 10;
  }));
  const Exposition after(running.Get("/metrics").body);
  EXPECT_GT(after["sluice_tokens_discarded_total{cause=\"stop\"}"], 0);
  EXPECT_EQ(after["sluice_tokens_discarded_total{cause=\"stop\"}"],
            after["sluice_stale_tokens_total"]);
}

TEST(ServerMetrics, NeverGoBackUnderLoad) {
  ServerOptions options;
  options.threads = 2;
  const RunningHttp running(options);
  std::vector<TestClient> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(running.Connect());
    clients.back().Send(TestClient::Request("POST", kCompletionsPath, Asking("a", 2000, kStreams)));
  }
  Exposition last(running.Get("/metrics").body);
  for (int i = 0; i < 20; ++i) {
    const Exposition next(running.Get("/metrics").body);
    next.ExpectBehind(last);
    last = next;
  }
  for (TestClient& client : clients) {
    const ReadResponse read = ResponseReader::Stream(client.Read().body);
    EXPECT_EQ(read.choices.at(0).text.size(), 2000u);
  }
  EXPECT_EQ(Exposition(running.Get("/metrics").body)["sluice_generation_tokens_total"], 16 * 2000);
}

// The log of the first thread hangs, and the thread in it.
TEST(ServerMetrics, DoNotWaitForAThreadThatHangs) {
  std::promise<void> gate;
  std::atomic<bool> may_hang = false;  // what is said of an engine to come is not waited for
  std::atomic<bool> hangs = false;
  auto engine = std::make_unique<AlphabetEngine>();
  ServerOptions options;
  options.engines = {engine->endpoint()};
  options.port = 0;
  options.threads = 2;
  options.log = [&, opens = gate.get_future().share()](std::string_view) {
    if (!may_hang) return;
    hangs = true;
    opens.wait();
  };
  Server server(LettersText(), options);
  std::stop_source stop;
  std::thread runs([&] { server.Run(stop.get_token(), {}); });
  for (int i = 0; i < 16; ++i) TestClient(server.port()).Post(kCompletionsPath, Asking("a", 5));
  const Exposition before(TestClient(server.port()).Get("/metrics").body);
  EXPECT_EQ(before["sluice_generation_tokens_total"], 16 * 5);

  may_hang = true;
  engine.reset();
  EXPECT_TRUE(Becomes([&] { return hangs.load(); }));
  // The kernel gives each to one of the two threads.
  std::vector<TestClient> clients;
  std::vector<pollfd> waits;
  for (int i = 0; i < 32; ++i) {
    clients.emplace_back(server.port());
    clients.back().Send(TestClient::Request("GET", "/metrics"));
    waits.push_back({clients.back().fd(), POLLIN, 0});
  }
  EXPECT_GT(::poll(waits.data(), waits.size(), 10'000), 0);
  for (size_t i = 0; i < waits.size(); ++i) {
    if (waits[i].revents == 0) continue;
    const Exposition after(clients[i].Read().body);
    after.ExpectBehind(before);
    EXPECT_EQ(after["sluice_generation_tokens_total"], 16 * 5);
    break;
  }
  gate.set_value();
  stop.request_stop();
  runs.join();
}

}  // namespace
}  // namespace sluice::test
