// What an engine keeps to: the context, the pages of the cache, and the sizes that a request may
// have.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sluice/engine.hpp"
#include "sluice/error.hpp"
#include "sluice/script_runner.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/support/counting_allocator.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

TEST(EngineLimits, ABurstInFlightNeverReadsBeyondTheContext) {
  for (const int32_t steps_in_flight : {0, 1}) {
    for (int32_t size = 48; size < 64; ++size) {
      ScriptRunner runner({.vocab = 100, .tokens = {7}, .context = 64, .burst = 8});
      Engine engine(runner, std::nullopt, {.steps_in_flight = steps_in_flight});
      EngineClient client(engine, 1);
      const RequestAddress address =
          client.Submit(MakeRequest(std::vector<int32_t>(static_cast<size_t>(size), 1), 100));
      ASSERT_NO_THROW(Drain(engine, {&client})) << size;
      EXPECT_EQ(client.Of(address).end, GenerationEnd::kContext);
      EXPECT_EQ(std::ssize(client.Of(address).ids), 64 - size);
    }
  }
}

TEST(EngineLimits, ARequestThatFillsTheContextNeedsNoPageBeyondIt) {
  CheckingOptions options;
  options.info.context = 64;
  options.info.page_tokens = 4;
  options.info.pages = 16;
  options.info.max_given_tokens = 8;
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, {.steps_in_flight = 1});
  EngineClient client(engine, 1);
  const EngineRequest request = MakeRequest(std::vector<int32_t>(40, 1), 100);
  const RequestAddress address = client.Submit(request);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(address).end, GenerationEnd::kContext) << client.Of(address).message;
  EXPECT_EQ(client.Of(address).ids, ExpectedOf(request, options).ids);
  ExpectIdle(engine, runner);
}

// A prompt that takes many steps to bring, while others decode and end: each end gives back as many
// pages as the others take until the next one, so that the prompt fits again and again, but not for
// long enough to be of use.
TEST(EngineLimits, NoPromptIsComputedInVainWhileOthersGrow) {
  constexpr int32_t kEnding = 32, kGrowing = 32, kInterval = 4, kLong = 3000;
  for (const int32_t steps_in_flight : {0, 1}) {
    for (int64_t spare = 0; spare < 400; spare += 40) {
      CheckingOptions options;
      options.info = {.vocab = 100,
                      .context = 4096,
                      .max_requests = kEnding + kGrowing + 1,
                      .max_step_tokens = 512,
                      .page_tokens = 1};
      std::vector<EngineRequest> requests(kGrowing, MakeRequest({1}, kInterval * kEnding + 20));
      for (int32_t i = 0; i < kEnding; ++i) {
        const int64_t taken_until_next = kInterval * (kGrowing + kEnding - i);
        const int64_t output = kInterval * (i + 1);
        const auto prompt = static_cast<size_t>(taken_until_next - output);
        requests.push_back(MakeRequest(std::vector<int32_t>(prompt, 1), output));
      }
      requests.push_back(MakeRequest(std::vector<int32_t>(kLong, 2), 8));
      int64_t needed = 0;
      for (const EngineRequest& request : requests) needed += std::ssize(request.prompt);
      options.info.pages = needed + spare;
      CheckingRunner runner(options);
      Engine engine(runner, std::nullopt, {.steps_in_flight = steps_in_flight});
      EngineClient client(engine, static_cast<int32_t>(requests.size()));
      for (const EngineRequest& request : requests) client.Submit(request);
      Drain(engine, {&client});
      EXPECT_EQ(engine.counters().prompt_tokens, needed) << spare;
      ExpectIdle(engine, runner);
    }
  }
}

// Prompts of any length, so few pages that most are preempted, and a page a token.
TEST(EngineLimits, WhatIsComputedAgainStaysASmallMultipleOfWhatMustBe) {
  for (const int32_t steps_in_flight : {0, 1}) {
    for (const int64_t given : {1, 6}) {
      CheckingOptions options;
      options.info = {.vocab = 100,
                      .context = 1024,
                      .max_requests = 24,
                      .max_step_tokens = 32,
                      .page_tokens = 1,
                      .pages = 2048,
                      .max_given_tokens = given};
      CheckingRunner runner(options);
      Engine engine(runner, std::nullopt, {.steps_in_flight = steps_in_flight});
      EngineClient client(engine, 64);
      int64_t needed = 0;
      for (int32_t i = 0; i < 64; ++i) {
        const auto size = static_cast<size_t>(100 + 37 * i % 300);
        client.Submit(MakeRequest(std::vector<int32_t>(size, i), 50 + 83 * i % 400));
        needed += static_cast<int64_t>(size);
      }
      Drain(engine, {&client});
      const EngineCounters& counters = engine.counters();
      EXPECT_GT(counters.preemptions, 0) << "the pages suffice";
      // Twice: each of them once more.
      EXPECT_LE(counters.prompt_tokens + counters.tokens, 2 * (needed + counters.tokens));
      ExpectIdle(engine, runner);
    }
  }
}

// So that a server can tell its clients what to change, or to come again.
TEST(EngineLimits, ARejectionSaysWhoseFaultItIsAndWhichParametersItWas) {
  struct Case {
    std::function<void(EngineRequest&)> change;
    ErrorCode code;
    std::string parameter;
  };
  const Case all[] = {
      {[](EngineRequest& r) { r.params.temperature = -1; }, ErrorCode::kInvalidValue,
       "temperature"},
      {[](EngineRequest& r) { r.max_tokens = -1; }, ErrorCode::kInvalidValue, "max_tokens"},
      {[](EngineRequest& r) { r.prompt.resize(64, 1); }, ErrorCode::kInvalidValue, "prompt"},
      {[](EngineRequest& r) { r.text.stops = {""}; }, ErrorCode::kInvalidValue, "stops[0].size()"},
      {[](EngineRequest& r) { r.prompt.resize(20, 1); }, ErrorCode::kExhausted, ""},
  };
  for (const Case& bad : all) {
    CheckingRunner runner({});
    Engine engine(runner, std::nullopt, {.max_waiting_tokens = 10});
    EngineClient client(engine, 4);
    EngineRequest request = MakeRequest({1});
    bad.change(request);
    const RequestAddress address = client.Submit(request);
    client.Take(engine.Step());
    const Received& received = client.Of(address);
    EXPECT_EQ(received.end, GenerationEnd::kRejected);
    EXPECT_EQ(received.code, bad.code) << received.message;
    EXPECT_EQ(received.parameter, bad.parameter) << received.message;
  }
}

// Two clients, one of which asks for everything that may wait.
TEST(EngineLimits, OneClientThatAsksForEverythingLeavesRoomForTheOthers) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt, {.max_waiting = 8});
  EngineClient greedy(engine, 64);
  std::vector<RequestAddress> asked;
  for (int32_t i = 0; i < 10; ++i) asked.push_back(greedy.Submit(MakeRequest({i}, 2)));
  EXPECT_EQ(engine.counters().waiting, 8) << "alone it may have it all";
  Drain(engine, {&greedy});

  EngineClient other(engine, 64);
  for (int32_t i = 0; i < 10; ++i) asked.push_back(greedy.Submit(MakeRequest({i}, 2)));
  EXPECT_EQ(engine.counters().waiting, 4);
  std::vector<RequestAddress> few;
  for (int32_t i = 0; i < 4; ++i) few.push_back(other.Submit(MakeRequest({i}, 2)));
  EXPECT_EQ(engine.counters().waiting, 8);
  const RequestAddress too_many = other.Submit(MakeRequest({1}, 2));
  Drain(engine, {&greedy, &other});
  EXPECT_EQ(greedy.Of(asked.back()).end, GenerationEnd::kRejected);
  EXPECT_EQ(greedy.Of(asked.back()).code, ErrorCode::kExhausted);
  EXPECT_EQ(greedy.Of(asked.back()).message,
            "waiting requests of one client = 5 is not allowed: [0, 4]");
  for (const RequestAddress& address : few) {
    EXPECT_EQ(other.Of(address).end, GenerationEnd::kLength);
  }
  EXPECT_EQ(other.Of(too_many).message, "waiting requests = 9 is not allowed: [0, 8]");

  // Half of the places are for whoever comes, however many others there are.
  std::vector<ClientId> idle;
  for (int i = 0; i < 6; ++i) idle.push_back(engine.AddClient());
  asked.clear();
  for (int32_t i = 0; i < 5; ++i) asked.push_back(greedy.Submit(MakeRequest({i}, 2)));
  EXPECT_EQ(engine.counters().waiting, 4);
  // A client that goes leaves its share to the others.
  for (const ClientId client : idle) engine.RemoveClient(client);
  engine.RemoveClient(other.id);
  for (int32_t i = 0; i < 5; ++i) greedy.Submit(MakeRequest({i}, 2));
  EXPECT_EQ(engine.counters().waiting, 8);
}

TEST(EngineLimits, PromptsThatWaitAreSharedAlike) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt, {.max_waiting_tokens = 40});
  EngineClient greedy(engine, 64);
  EngineClient other(engine, 64);
  const auto prompt = [](size_t tokens) { return MakeRequest(std::vector<int32_t>(tokens, 1), 2); };
  const RequestAddress large = greedy.Submit(prompt(25));  // more than a share, but all it has
  const RequestAddress more = greedy.Submit(prompt(1));
  const RequestAddress its = other.Submit(prompt(15));
  Drain(engine, {&greedy, &other});
  EXPECT_EQ(greedy.Of(large).end, GenerationEnd::kLength);
  EXPECT_EQ(greedy.Of(more).message,
            "tokens of waiting prompts of one client = 26 is not allowed: [0, 20]");
  EXPECT_EQ(other.Of(its).end, GenerationEnd::kLength);
}

TEST(EngineLimits, ListsOfARequestHaveAMostAndOneMoreIsRefused) {
  constexpr int64_t kVocab = 100;  // of the runner
  using Grow = std::function<void(SamplingParams&, size_t)>;
  struct List {
    std::string parameter;
    size_t most;
    Grow grow;
  };
  const List all[] = {
      {"logit_bias", kVocab, [](auto& p, size_t n) { p.logit_bias.assign(n, {1, 1.0f}); }},
      {"allowed_token_ids", kVocab,
       [](auto& p, size_t n) { p.allowed_token_ids = TokenIds(n, 1); }},
      {"stop_token_ids", 1024, [](auto& p, size_t n) { p.stop_token_ids.assign(n, 99); }},
      {"dry_sequence_breakers", 1024,
       [](auto& p, size_t n) { p.dry_sequence_breakers.assign(n, 1); }},
      {"bad_words", 1024, [](auto& p, size_t n) { p.bad_words.assign(n, {1}); }},
      {"bad_words", 16384, [](auto& p, size_t n) { p.bad_words = {{1}, TokenIds(n - 1, 1)}; }},
  };
  for (const List& list : all) {
    SCOPED_TRACE(list.parameter);
    CheckingRunner runner({});
    Engine engine(runner, std::nullopt);
    EngineClient client(engine, 2);
    EngineRequest request = MakeRequest({1}, 1);
    list.grow(request.params, list.most);
    const RequestAddress most = client.Submit(request);
    list.grow(request.params, list.most + 1);
    const RequestAddress above = client.Submit(request);
    Drain(engine, {&client});
    EXPECT_NE(client.Of(most).end, GenerationEnd::kRejected) << client.Of(most).message;
    EXPECT_EQ(client.Of(above).end, GenerationEnd::kRejected);
    EXPECT_EQ(client.Of(above).parameter, list.parameter);
    EXPECT_EQ(client.Of(above).code, ErrorCode::kInvalidValue);
  }
}

TEST(EngineLimits, StopsThatAreTooManyAreRefusedBeforeMemoryIsTakenForThem) {
  const std::vector<std::string> stops(20'000, std::string(100, 'a'));
  StopListCache cache;
  const int64_t before = AllocatedBytes();
  EXPECT_THROW(cache.Get(stops), Error);
  EXPECT_LT(AllocatedBytes() - before, 4096);
}

// Two sides that hash alike make the same text of the same ids, so these must not.
TEST(EngineLimits, TokenizersThatReadIdsDifferentlyHashDifferently) {
  const std::vector<TestToken> tokens = {{"▁▁a"}, {"▁"}, {"▁b"}, {"<0x41>"}};
  const auto metaspace = [](std::string_view scheme) {
    return std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")")
        .append(scheme)
        .append("\"}");
  };
  const auto then = [](std::string_view step) {
    return std::string(R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":)"
                       R"({"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"})")
        .append(step)
        .append("]}");
  };
  const std::string decoders[] = {
      metaspace("always"),
      metaspace("never"),
      then(""),
      then(R"(,{"type":"Strip","content":" ","start":1,"stop":0})"),
      then(R"(,{"type":"Strip","content":" ","start":2,"stop":0})"),
      then(R"(,{"type":"Strip","content":" ","start":1,"stop":1})"),
      then(R"(,{"type":"Strip","content":"_","start":1,"stop":1})"),
  };
  std::set<uint64_t> hashes;
  for (const std::string& decoder : decoders) {
    const auto hash = [&] {
      return TokenizerHash(Tokenizer::FromJson(TokenizerJson(tokens, decoder)));
    };
    EXPECT_EQ(hash(), hash());
    EXPECT_TRUE(hashes.insert(hash()).second) << decoder;
  }
  // Drops one leading space: the fourth of these by another name.
  const auto spm = Tokenizer::FromJson(TokenizerJson(tokens, metaspace("never")),
                                       {.decoder = TokenDecoder::kSentencePiece});
  const auto same = Tokenizer::FromJson(TokenizerJson(tokens, decoders[3]));
  EXPECT_EQ(TokenizerHash(spm), TokenizerHash(same));
}

}  // namespace
}  // namespace sluice::test
