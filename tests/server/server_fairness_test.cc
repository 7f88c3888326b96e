// What one client may take of a server, and what remains for the others.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/completions/serving.h"
#include "tests/server/exposition.h"
#include "tests/server/running.h"

namespace sluice::test {
namespace {

constexpr char kCompletions[] = "/v1/completions";
constexpr char kOne[] = "Authorization: Bearer one\r\n";
constexpr char kTwo[] = "Authorization: Bearer two\r\n";

ServerOptions TwoKeys() {
  ServerOptions options;
  options.api_keys = {"one", "two"};
  return options;
}

// Completions over an engine of few slots, of which every Poll makes one step.
struct SteppedServing {
  SteppedServing() {
    EngineInfo info = InfoOf(text.tokenizer());
    info.end_tokens = {};
    client = MakeLocalClient(engine, info, text.tokenizer());
    serving.emplace(*client, text);
  }
  FakeExchange& Ask(std::string_view body, uint64_t group) {
    return serving->Ask(body, Api::kCompletions, group);
  }

  ModelText text = LettersText();
  ScriptRunner runner{{.vocab = text.tokenizer().size(), .echo = true, .max_requests = 64}};
  Engine engine{runner, text.tokenizer(), {.max_client_requests = 1024}};
  std::unique_ptr<Client> client;
  std::optional<Serving> serving;
};

TEST(ServerFairness, AHundredChoicesOfOneClientDelayATokenOfAnotherByTwoSteps) {
  SteppedServing stepped;
  stepped.Ask(R"({"prompt":"a","n":128,"max_tokens":200,"ignore_eos":true,"stream":true})", 7);
  for (int step = 0; step < 5; ++step) stepped.serving->Poll();
  EXPECT_EQ(stepped.engine.counters().running, 60);  // half of an eighth is kept for others
  const FakeExchange& other = stepped.Ask(R"({"prompt":"a","max_tokens":1})", 8);
  int steps = 0;
  while (!other.is_complete() && steps < 100) {
    stepped.serving->Poll();
    ++steps;
  }
  EXPECT_LE(steps, 2);
  EXPECT_EQ(other.response()->status, 200);
}

TEST(ServerFairness, ACancelledRequestOfManyChoicesIsGoneInTwoSteps) {
  SteppedServing stepped;
  FakeExchange& left =
      stepped.Ask(R"({"prompt":"a","n":128,"max_tokens":200,"ignore_eos":true,"stream":true})", 7);
  for (int step = 0; step < 5; ++step) stepped.serving->Poll();
  left.answer.reset();
  for (int step = 0; step < 2; ++step) stepped.serving->Poll();
  EXPECT_EQ(stepped.engine.counters().running, 0);
  EXPECT_EQ(stepped.engine.counters().waiting, 0);
}

TEST(ServerFairness, ChoicesAreWhatIsCounted) {
  ServerOptions options;
  options.max_requests = 4;
  const RunningHttp running(options, AlphabetScript(8, milliseconds(5)));
  EXPECT_EQ(running.Get("/ready").status, 200);
  TestClient stream = running.Connect();
  stream.Send(
      TestClient::Request("POST", kCompletions, Asking("a", 4000, R"(,"n":4,"stream":true)")));
  EXPECT_EQ(stream.ReadHead().status, 200);
  EXPECT_EQ(running.Get("/ready").status, 503);
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1)).status, 503);
  stream.Reset();
  EXPECT_TRUE(Becomes([&] { return running.Get("/ready").status == 200; }));
  const TestResponse refused = running.Post(kCompletions, Asking("a", 1, R"(,"n":5)"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused).param, "n");
  const TestResponse prompts =
      running.Post(kCompletions, R"({"prompt":["a","b","c","d","e"],"max_tokens":1})");
  EXPECT_EQ(prompts.status, 400);
  EXPECT_EQ(ErrorOf(prompts).param, "prompt");
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1, R"(,"n":4)")).status, 200);
}

TEST(ServerFairness, AKeyHasItsChoicesAndAnotherKeyAPlace) {
  ServerOptions options = TwoKeys();
  options.max_requests_per_key = 3;
  options.max_requests = 6;
  const RunningHttp running(options, AlphabetScript(8, milliseconds(5)));
  const TestResponse never = running.Post(kCompletions, Asking("a", 1, R"(,"n":4)"), kOne);
  EXPECT_EQ(never.status, 400);
  EXPECT_EQ(never["retry-after"], "");
  TestClient stream = running.Connect();
  stream.Send(TestClient::Request("POST", kCompletions,
                                  Asking("a", 4000, R"(,"n":3,"stream":true)"), kOne));
  EXPECT_EQ(stream.ReadHead().status, 200);
  const TestResponse refused = running.Post(kCompletions, Asking("a", 1), kOne);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused["retry-after"], "1");
  EXPECT_EQ(ErrorOf(refused).code, "rate_limit_exceeded");
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1), kTwo).status, 200);
}

TEST(ServerFairness, ABodyThatLeavesNoRoomForOthersIsRefused) {
  ServerOptions options;
  options.http.inflight_bytes = size_t{256} << 10;
  const RunningHttp running(options);
  // Its length alone says so, and its bytes need not come.
  TestClient announced = running.Connect();
  announced.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 140000\r\n\r\n");
  const TestResponse refused = announced.Read();
  // The budget never has room for it.
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused["retry-after"], "");
  EXPECT_EQ(ErrorOf(refused).code, "request_too_large");
  EXPECT_NE(ErrorOf(refused).message.find("131072 bytes"), std::string::npos) << refused.body;
  // Chunks that say nothing of their end, up to where they are too many.
  TestClient chunked = running.Connect();
  chunked.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "8000\r\n" + std::string(0x8000, ' ') + "\r\n";
  for (int i = 0; i < 5; ++i) chunked.Send(chunk);
  EXPECT_EQ(chunked.Read().status, 413);
  // One that stays, and takes 100 KiB; a short one has room.
  TestClient half = running.Connect();
  half.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 110000\r\n\r\n" +
      std::string(100'000, ' '));
  const auto inflight = [&] {
    return Exposition(running.Get("/metrics").body)["sluice_http_inflight_bytes"];
  };
  EXPECT_TRUE(Becomes([&] { return inflight() == 100'000; }));
  // This length would have room without the other.
  TestClient late = running.Connect();
  late.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 130000\r\n\r\n");
  const TestResponse busy = late.Read();
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy["retry-after"], "1");
  EXPECT_EQ(ErrorOf(busy).type, "service_unavailable");
  const std::string space(20'000, ' ');
  EXPECT_EQ(running.Post(kCompletions, space + Asking("a", 1)).status, 200);
  EXPECT_EQ(
      running.Post(kCompletions, space + space + space + space + space + Asking("a", 1)).status,
      503);
  half.Send(std::string(10'000 - Asking("a", 1).size(), ' ') + Asking("a", 1));
  EXPECT_EQ(half.Read().status, 200);
  EXPECT_TRUE(Becomes([&] { return inflight() == 0; })) << inflight();
}

TEST(ServerFairness, TheBodiesOfOneKeyLeaveRoomForAnother) {
  ServerOptions options = TwoKeys();
  options.http.inflight_bytes = size_t{256} << 10;
  const RunningHttp running(options);
  const auto send = [&](std::string_view key) {
    TestClient client = running.Connect();
    client.Send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
        std::string(key) + "Content-Length: 30000\r\n\r\n" + std::string(29'000, ' '));
    return client;
  };
  const auto inflight = [&] {
    return Exposition(running.Get("/metrics").body)["sluice_http_inflight_bytes"];
  };
  std::vector<TestClient> held;
  for (int i = 1; i <= 4; ++i) {
    held.push_back(send(kOne));
    ASSERT_TRUE(Becomes([&] { return inflight() == 29'000 * i; }));
  }
  EXPECT_EQ(send(kOne).Read().status, 503);
  TestClient other = send(kTwo);
  other.Send(std::string(1000 - Asking("a", 1).size(), ' ') + Asking("a", 1));
  EXPECT_EQ(other.Read().status, 200);
}

TEST(ServerFairness, KeysMayChangeWhileStreamsGoOn) {
  RunningHttp running(TwoKeys(), AlphabetScript(8, milliseconds(5)));
  TestClient stream = running.Connect();
  stream.Send(TestClient::Request("POST", kCompletions, Asking("a", 40, kStreams), kOne));
  EXPECT_EQ(stream.ReadHead().status, 200);
  running.server().SetApiKeys({"two", "three"});
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1), kOne).status, 401);
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1), kTwo).status, 200);
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1), "Authorization: Bearer three\r\n").status,
            200);
  std::string body;
  while (stream.ReadChunk(body)) {
  }
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  EXPECT_THROW(running.server().SetApiKeys({}), Error);
  EXPECT_THROW(running.server().SetApiKeys({"a key"}), Error);
  EXPECT_EQ(running.Post(kCompletions, Asking("a", 1), kTwo).status, 200);
}

}  // namespace
}  // namespace sluice::test
