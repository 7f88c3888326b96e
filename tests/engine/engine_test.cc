// What a request gets depends on the request alone, and every request ends once.
#include "sluice/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/check.h"
#include "tests/engine/engine_client.h"
#include "tests/engine/one_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/support/bad_input.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

struct Shape {
  std::string name;
  int32_t max_requests = 4;
  int64_t step_tokens = 16;
  int64_t page_tokens = 4;
  int64_t pages = 64;
  int64_t given = 1;
  int32_t steps_in_flight = 0;
};

CheckingOptions OptionsOf(const Shape& shape) {
  CheckingOptions options;
  options.info.max_requests = shape.max_requests;
  options.info.max_step_tokens = shape.step_tokens;
  options.info.page_tokens = shape.page_tokens;
  options.info.pages = shape.pages;
  options.info.max_given_tokens = shape.given;
  return options;
}

std::vector<Shape> Shapes() {
  const std::vector<Shape> synchronous = {
      {"Alone", 1, 64, 4, 64},
      {"OneTokenASlot", 4, 4, 4, 64},
      {"OneTokenAStep", 8, 1, 4, 64},
      {"Roomy", 32, 512, 16, 512},
      {"LittleCache", 8, 16, 1, 70},  // one at its longest, and a little
      {"LittleCacheOfPages", 8, 32, 8, 11},
      {"Bursts", 6, 16, 4, 64, 5},
      {"BurstsInLittleCache", 6, 16, 2, 40, 3},
  };
  std::vector<Shape> shapes;
  for (Shape shape : synchronous) {
    shapes.push_back(shape);
    shape.steps_in_flight = 1;
    shape.name += "InFlight";
    shapes.push_back(shape);
  }
  return shapes;
}

// Prompts and ends of all kinds; prompt[0] tells them apart.
std::vector<EngineRequest> MixedRequests(int32_t count, const RunnerInfo& info, uint64_t seed) {
  Random random(seed);
  std::vector<EngineRequest> requests;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt(static_cast<size_t>(random.Between(1, 40)));
    for (int32_t& id : prompt) id = static_cast<int32_t>(random.Below(info.vocab));
    EngineRequest request = MakeRequest(prompt, random.Between(1, 40));
    request.params.seed = random.Bits();
    request.choice = static_cast<uint32_t>(random.Below(3));
    if (random.Coin()) {
      request.params.stop_token_ids = {static_cast<int32_t>(random.Below(info.vocab)),
                                       static_cast<int32_t>(random.Below(info.vocab)), 7};
      request.params.min_tokens = static_cast<int32_t>(random.Below(10));
    }
    if (random.Coin(0.3)) request.params.logprobs = static_cast<int32_t>(random.Below(4));
    request.stop_at = random.Coin() ? StopAt::kEngine : StopAt::kFrontend;
    requests.push_back(std::move(request));
  }
  return requests;
}

// A number for each token, a list for each where they were asked for, as the runner gave them.
void ExpectLogprobs(const Received& received, const EngineRequest& request) {
  if (!request.params.logprobs.has_value()) {
    EXPECT_TRUE(received.logprobs.empty() && received.logprob_ids.empty());
    return;
  }
  const auto width = static_cast<size_t>(*request.params.logprobs) + 1;
  ASSERT_EQ(received.logprobs.size(), received.ids.size());
  ASSERT_EQ(received.ranks.size(), received.ids.size());
  ASSERT_EQ(received.logprob_ids.size(), received.ids.size() * width);
  ASSERT_EQ(received.logprob_values.size(), received.ids.size() * width);
  for (size_t i = 0; i < received.ids.size(); ++i) {
    EXPECT_EQ(received.logprobs[i], -static_cast<float>(i));
    EXPECT_EQ(received.ranks[i], static_cast<int32_t>(i) + 1);
    for (size_t entry = 0; entry < width; ++entry) {
      EXPECT_EQ(received.logprob_ids[i * width + entry],
                received.ids[i] + static_cast<int32_t>(entry));
      EXPECT_EQ(received.logprob_values[i * width + entry],
                -static_cast<float>(i) - static_cast<float>(entry));
    }
  }
}

class EngineOn : public ::testing::TestWithParam<Shape> {
 protected:
  EngineOptions engine_options() const { return {.steps_in_flight = GetParam().steps_in_flight}; }
};

TEST_P(EngineOn, GivesEachRequestItsTokensWhateverIsInTheBatch) {
  const CheckingOptions options = OptionsOf(GetParam());
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 200);
  const std::vector<EngineRequest> requests = MixedRequests(150, options.info, 1);
  std::vector<RequestAddress> addresses;
  Random random(2);
  for (const EngineRequest& request : requests) {
    addresses.push_back(client.Submit(request));
    if (random.Coin(0.4)) client.Take(engine.Step());
  }
  Drain(engine, {&client});
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectSame(client.Of(addresses[i]), ExpectedOf(requests[i], options));
    ExpectLogprobs(client.Of(addresses[i]), requests[i]);
  }
  ExpectIdle(engine, runner);
  EXPECT_EQ(runner.most_on_their_way, GetParam().steps_in_flight == 0 ? 1u : 2u);
  const bool is_little = GetParam().name.find("LittleCache") != std::string::npos;
  if (is_little) {
    EXPECT_GT(runner.preempted, 0) << "the shape does not do what it is for";
  }
  EXPECT_EQ(engine.counters().preemptions, runner.preempted);
}

TEST_P(EngineOn, GivesTheSameInEveryOrderOfArrival) {
  const CheckingOptions options = OptionsOf(GetParam());
  std::vector<EngineRequest> requests = MixedRequests(24, options.info, 3);
  Random random(4);
  for (int round = 0; round < 4; ++round) {
    for (size_t i = requests.size(); i > 1; --i) {
      std::swap(requests[i - 1],
                requests[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
    CheckingRunner runner(options);
    Engine engine(runner, std::nullopt, engine_options());
    EngineClient client(engine, 24);
    std::vector<RequestAddress> addresses;
    for (const EngineRequest& request : requests) addresses.push_back(client.Submit(request));
    Drain(engine, {&client});
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectSame(client.Of(addresses[i]), ExpectedOf(requests[i], options));
    }
    ExpectIdle(engine, runner);
  }
}

// None at length, none at a stop; with a step in flight at most one at a stop. A burst's surplus is
// not known beforehand.
TEST_P(EngineOn, DrawsNoTokenTooManyButThatInFlight) {
  const Shape& shape = GetParam();
  const CheckingOptions options = OptionsOf(shape);
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 64);
  const std::vector<EngineRequest> requests = MixedRequests(64, options.info, 5);
  int64_t stopped = 0;
  for (const EngineRequest& request : requests) {
    if (ExpectedOf(request, options).end == GenerationEnd::kStopToken) ++stopped;
    client.Submit(request);
  }
  ASSERT_GT(stopped, 4);
  Drain(engine, {&client});
  const int64_t surplus = shape.given - 1 + shape.given * shape.steps_in_flight;
  EXPECT_LE(engine.counters().tokens_discarded_stop,
            shape.given == 1 ? surplus * stopped : surplus * std::ssize(requests));
  EXPECT_EQ(engine.counters().tokens_discarded_abort, 0);
  ExpectIdle(engine, runner);
}

TEST_P(EngineOn, AThousandAbortsFreeEverySlotWithinTwoSteps) {
  const CheckingOptions options = OptionsOf(GetParam());
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 1000);
  std::vector<RequestAddress> addresses;
  for (int32_t i = 0; i < 1000; ++i) addresses.push_back(client.Submit(MakeRequest({i % 100}, 40)));
  for (int step = 0; step < 7; ++step) client.Take(engine.Step());
  for (const RequestAddress& address : addresses) {
    if (!client.HasEnded(address)) client.Abort(address);
  }
  EXPECT_LE(Drain(engine, {&client}), 2);
  EXPECT_EQ(client.ended(), 1000u);
  ExpectIdle(engine, runner);
}

INSTANTIATE_TEST_SUITE_P(All, EngineOn, ::testing::ValuesIn(Shapes()),
                         [](const auto& param) { return param.param.name; });

TEST(Engine, EndsAtTheLengthTheContextAStopTokenOrAStatus) {
  CheckingOptions options;
  options.token = [](const TokenSource&, int64_t index) {
    return index == 30 ? TokenResult{.status = RowStatus::kEmptySupport}
                       : TokenResult{.id = static_cast<int32_t>(index)};
  };
  OneClient bench(options);
  EXPECT_EQ(bench.Run(MakeRequest({1, 2}, 5)).end, GenerationEnd::kLength);
  EXPECT_EQ(bench.Run(MakeRequest({1, 2}, 5)).ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));

  const std::vector<int32_t> long_prompt(60, 1);
  EXPECT_EQ(bench.Run(MakeRequest(long_prompt, 5)).end, GenerationEnd::kContext);
  EXPECT_EQ(bench.Run(MakeRequest(long_prompt, 5)).ids.size(), 4u);
  EXPECT_EQ(bench.Run(MakeRequest(long_prompt, 4)).end, GenerationEnd::kLength);

  EngineRequest stops = MakeRequest({1, 2}, 20);
  stops.params.stop_token_ids = {9, 3, 6};
  EXPECT_EQ(bench.Run(stops).end, GenerationEnd::kStopToken);
  EXPECT_EQ(bench.Run(stops).ids.size(), 4u);
  stops.params.min_tokens = 3;  // of these no stop counts; number 3 is the fourth
  EXPECT_EQ(bench.Run(stops).ids.size(), 4u);
  stops.params.min_tokens = 4;
  EXPECT_EQ(bench.Run(stops).ids.size(), 7u);
  stops.max_tokens = 4;  // the last token may be a stop, and then it is one
  stops.params.min_tokens = 0;
  EXPECT_EQ(bench.Run(stops).end, GenerationEnd::kStopToken);

  const Received status = bench.Run(MakeRequest({1, 2}, 40));
  EXPECT_EQ(status.end, GenerationEnd::kStatus);
  EXPECT_EQ(status.status, RowStatus::kEmptySupport);
  EXPECT_EQ(status.message, "empty_support");
  EXPECT_EQ(status.ids.size(), 30u);
  ExpectIdle(bench.engine, bench.runner);
}

TEST(Engine, RejectsWhatItCannotTakeAndSaysWhy) {
  const auto message_of = [](auto spoil) {
    CheckingOptions options;
    options.info.pages = 10;  // of four tokens
    OneClient bench(options);
    EngineRequest request = MakeRequest({1, 2, 3});
    spoil(request);
    const Received received = bench.Run(std::move(request));
    EXPECT_EQ(received.end, GenerationEnd::kRejected);
    EXPECT_TRUE(received.ids.empty());
    EXPECT_EQ(bench.engine.counters().rejected, 1);
    ExpectIdle(bench.engine, bench.runner);
    return received.message;
  };
  using R = EngineRequest;
  EXPECT_EQ(message_of([](R& r) { r.params.top_p = 1.5f; }), "top_p = 1.5 is not allowed: (0, 1]");
  EXPECT_EQ(message_of([](R& r) { r.params.temperature = 3.0f; }),
            "temperature = 3 is not allowed: [0, 2]");
  EXPECT_EQ(message_of([](R& r) { r.params.seed.reset(); }),
            "missing seed: a whole number, which the client chooses");
  EXPECT_EQ(message_of([](R& r) { r.params.stop_token_ids = {100}; }),
            "stop_token_ids = 100 is not allowed: [0, 99]");
  EXPECT_EQ(message_of([](R& r) { r.params.logprobs = 6; }), "logprobs = 6 is not allowed: [0, 5]");
  EXPECT_EQ(message_of([](R& r) { r.params.logprobs = -1; }),
            "logprobs = -1 is not allowed: [0, 5]");
  EXPECT_EQ(message_of([](R& r) { r.choice = 1 << 24; }),
            "choice = 16777216 is not allowed: [0, 16777215]");
  EXPECT_EQ(message_of([](R& r) { r.max_tokens = -1; }),
            "max_tokens = -1 is not allowed: [0, 2147483647]");
  EXPECT_EQ(message_of([](R& r) { r.prompt.clear(); }),
            "prompt = 0 tokens is not allowed: 1 to 63, so that one more fits into the context");
  EXPECT_EQ(message_of([](R& r) { r.prompt.assign(64, 1); }),
            "prompt = 64 tokens is not allowed: 1 to 63, so that one more fits into the context");
  EXPECT_EQ(message_of([](R& r) { r.prompt[1] = -1; }), "prompt = -1 is not allowed: [0, 99]");
  EXPECT_EQ(message_of([](R& r) { r.prompt[1] = 100; }), "prompt = 100 is not allowed: [0, 99]");
  EXPECT_EQ(message_of([](R& r) { r.stop_at = static_cast<StopAt>(2); }),
            "stop_at = 2 is not allowed: [0, 1]");
  EXPECT_EQ(message_of([](R& r) { r.text.incomplete = static_cast<Incomplete>(9); }),
            "text.incomplete = 9 is not allowed: [0, 1]");
  EXPECT_EQ(message_of([](R& r) { r.text.detokenizer.utf8_errors = static_cast<Utf8Errors>(9); }),
            "text.detokenizer.utf8_errors = 9 is not allowed: [0, 1]");
  EXPECT_EQ(message_of([](R& r) { r.text.stops = {"a", ""}; }),
            "stops[1].size() = 0 is not allowed: [1, 1024]");
  EXPECT_EQ(message_of([](R& r) {
              r.text.stops.assign(17, "a");
              r.stop_at = StopAt::kFrontend;  // whoever looks for them
            }),
            "stops.size() = 17 is not allowed: [0, 16]");
  EXPECT_EQ(message_of([](R& r) { r.text.stops = {"a"}; }),
            "stop_at = engine is not allowed: frontend for requests with stops: this engine has "
            "no text");
  EXPECT_EQ(message_of([](R& r) { r.max_tokens = 39; }),
            "prompt and max_tokens = 3 and 39 tokens, 11 pages of the cache is not allowed: at "
            "most 10 pages of 4 tokens");
}

TEST(Engine, LogprobsOfTheWholeVocabularyAreForRunnersThatSaySo) {
  CheckingOptions options;
  options.info.max_logprobs = -1;
  OneClient bench(options);
  EngineRequest request = MakeRequest({1}, 2);
  request.params.logprobs = 100;
  EXPECT_EQ(bench.Run(request).logprob_ids.size(), 202u);
  request.params.logprobs = -1;  // this runner makes nothing of it
  EXPECT_EQ(bench.Run(request).end, GenerationEnd::kLength);
}

TEST(Engine, TellsMisuseOfItsOwnFromBadRequests) {
  OneClient bench({}, {.max_clients = 2, .max_client_requests = 10});
  EngineRequest request = MakeRequest({1});
  const ClientId client = bench.client.id;
  const auto submit = [&](ClientId from, RequestAddress address) {
    request.address = address;
    bench.engine.Submit(from, request);
  };
  ExpectError([&] { submit({5, 1}, {0, 1}); }, "client", "5", "one that AddClient gave");
  ExpectError([&] { submit({client.slot, client.generation + 1}, {0, 1}); }, "client", "0",
              "one that AddClient gave");
  ExpectError([&] { submit(client, {10, 1}); }, "address.slot", "10", "[0, 9]");
  ExpectError([&] { submit(client, {-1, 1}); }, "address.slot", "-1", "[0, 9]");
  submit(client, {3, 1});
  const std::string taken = "one with its last request ended";
  ExpectError([&] { submit(client, {3, 1}); }, "address.slot", "3", taken);
  ExpectError([&] { submit(client, {3, 2}); }, "address.slot", "3", taken);
  request.max_tokens = -1;
  submit(client, {4, 1});  // rejected, which it is told with the next step only
  ExpectError([&] { submit(client, {4, 2}); }, "address.slot", "4", taken);
  request.max_tokens = 1;

  EXPECT_EQ(bench.engine.counters().requests, 2);
  const ClientId other = bench.engine.AddClient();
  ExpectError([&] { bench.engine.AddClient(); }, "clients", "3", "[0, 2]", ErrorCode::kExhausted);
  submit(other, {3, 1});  // places of another client are others
  bench.engine.RemoveClient(other);
  EXPECT_NE(bench.engine.AddClient(), other);
  ExpectError([&] { submit(other, {3, 1}); }, "client", ToText(int64_t{other.slot}),
              "one that AddClient gave");
  bench.engine.RemoveClient(other);
  while (bench.engine.HasWork()) bench.engine.Step();
  EXPECT_EQ(bench.engine.counters().ended, 3);
}

TEST(Engine, RefusesOptionsAndRunnersThatCannotBe) {
  struct Call {
    CheckingOptions runner;
    EngineOptions engine;
  };
  ExpectErrors<Call>(
      {{[](Call& c) { c.engine.steps_in_flight = 2; }, "steps_in_flight", "2", "[0, 1]"},
       {[](Call& c) { c.engine.max_clients = 0; }, "max_clients", "0", "[1, 1048576]"},
       {[](Call& c) { c.engine.max_client_requests = 0; }, "max_client_requests", "0",
        "[1, 1048576]"},
       {[](Call& c) { c.engine.max_waiting = 0; }, "max_waiting", "0", RangeText(1, INT64_MAX)},
       {[](Call& c) { c.engine.max_waiting_tokens = 0; }, "max_waiting_tokens", "0",
        RangeText(1, INT64_MAX)},
       {[](Call& c) { c.engine.step_tokens = -1; }, "step_tokens", "-1", RangeText(0, INT64_MAX)},
       {[](Call& c) { c.runner.info.vocab = 0; }, "runner.vocab", "0", RangeText(1, INT32_MAX)},
       {[](Call& c) { c.runner.info.context = 1; }, "runner.context", "1", RangeText(2, INT32_MAX)},
       {[](Call& c) { c.runner.info.pages = 0; }, "runner.pages", "0", RangeText(1, INT64_MAX)},
       {[](Call& c) { c.runner.info.max_given_tokens = 0; }, "runner.max_given_tokens", "0",
        "[1, 1048576]"}},
      [](const Call& call) {
        CheckingRunner runner(call.runner);
        const Engine engine(runner, std::nullopt, call.engine);
      });
}

TEST(Engine, AMovedFromEngineSaysSo) {
  OneClient bench;
  Engine other = std::move(bench.engine);
  ExpectError([&] { bench.engine.HasWork(); }, "engine", "moved from",  // NOLINT
              "one that has not been moved from");
  EXPECT_FALSE(other.HasWork());
}

}  // namespace
}  // namespace sluice::test
