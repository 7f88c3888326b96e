// Requests that begin with tokens of one that ended read only what follows, and nothing else of
// them changes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/tiny_runner.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

// An engine of the tiny model with one client.
struct Chat {
  explicit Chat(const ModelRunnerOptions& options, int32_t steps_in_flight = 0)
      : runner(Tiny(), options),
        engine(runner, std::nullopt, {.steps_in_flight = steps_in_flight}),
        client(engine, 64) {}

  // Its output, after the prompt.
  std::vector<int32_t> Turn(const std::vector<int32_t>& prompt, int64_t max_tokens = 8) {
    const RequestAddress address = client.Submit(MakeRequest(prompt, max_tokens));
    while (engine.HasWork()) client.Take(engine.Step());
    EXPECT_EQ(client.Of(address).end, GenerationEnd::kLength);
    return client.Of(address).ids;
  }

  ModelRunner runner;
  Engine engine;
  EngineClient client;
};

std::vector<int32_t> RandomIds(Random& random, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(Tiny().vocab()));
  return ids;
}

void Append(std::vector<int32_t>& to, const std::vector<int32_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

TEST(PrefixCache, TheNextTurnOfAChatReadsItsNewTokensAlone) {
  Random random(1);
  Chat chat({.max_requests = 2});
  std::vector<int32_t> prompt = RandomIds(random, 40);
  Append(prompt, chat.Turn(prompt, 9));
  EXPECT_EQ(chat.engine.counters().prompt_tokens, 40);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 0);
  // Of 48 tokens that the model has read three pages of 16 are kept.
  Append(prompt, RandomIds(random, 3));
  chat.Turn(prompt);
  EXPECT_EQ(chat.engine.counters().prompt_tokens, 40 + (52 - 48));
  EXPECT_EQ(chat.engine.counters().cached_tokens, 48);
}

TEST(PrefixCache, APromptThatCameBeforeIsReadFromItsLastPageOn) {
  Random random(2);
  Chat chat({.max_requests = 2});
  const std::vector<int32_t> prompt = RandomIds(random, 32);
  const std::vector<int32_t> first = chat.Turn(prompt);
  EXPECT_EQ(chat.Turn(prompt), first);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 16);  // one token at least has to be read
  EXPECT_EQ(chat.engine.counters().prompt_tokens, 32 + 16);
}

TEST(PrefixCache, WithoutPlacesNothingIsKept) {
  Random random(3);
  Chat chat({.max_requests = 2, .max_prefixes = 0});
  const std::vector<int32_t> prompt = RandomIds(random, 32);
  EXPECT_EQ(chat.Turn(prompt), chat.Turn(prompt));
  EXPECT_EQ(chat.engine.counters().cached_tokens, 0);
}

// Its log-probabilities need the hidden states of all its tokens.
TEST(PrefixCache, APromptWithLogprobsIsReadWhole) {
  Random random(4);
  Chat chat({.max_requests = 2});
  const std::vector<int32_t> prompt = RandomIds(random, 40);
  chat.Turn(prompt);
  EngineRequest request = MakeRequest(prompt);
  request.prompt_logprobs = 2;
  const RequestAddress address = chat.client.Submit(request);
  while (chat.engine.HasWork()) chat.client.Take(chat.engine.Step());
  EXPECT_EQ(chat.client.Of(address).prompt_logprobs.size(), 39u);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 0);
}

TEST(PrefixCache, WhatWasUsedTheLongestTimeAgoGoesFirst) {
  Random random(5);
  // Room for a prompt with its output and one more, which is not all that four leave.
  Chat chat({.max_requests = 1, .cache_tokens = 2 * 48});
  const std::vector<int32_t> a = RandomIds(random, 32), b = RandomIds(random, 32),
                             c = RandomIds(random, 32), d = RandomIds(random, 32);
  for (const std::vector<int32_t>* prompt : {&a, &b, &c, &d}) chat.Turn(*prompt);
  const int64_t cached = chat.engine.counters().cached_tokens;
  EXPECT_EQ(cached, 0);
  chat.Turn(d);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 16);
  chat.Turn(a);  // its pages were given to others
  EXPECT_EQ(chat.engine.counters().cached_tokens, 16);
}

TEST(PrefixCache, APromptThatWasAbortedIsKeptAsFarAsItWasRead) {
  Random random(6);
  Chat chat({.max_requests = 2, .max_step_tokens = 20});
  const std::vector<int32_t> prompt = RandomIds(random, 50);
  const RequestAddress address = chat.client.Submit(MakeRequest(prompt));
  for (int i = 0; i < 2; ++i) chat.client.Take(chat.engine.Step());  // 40 tokens
  chat.client.Abort(address);
  while (chat.engine.HasWork()) chat.client.Take(chat.engine.Step());
  chat.Turn(prompt);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 32);
}

// Conversations that begin alike and go apart, in turns and at once, in a cache that is too small
// for them; each turn against an engine that keeps nothing.
// The page after the longest so far is compared first: the pages before it count as well.
TEST(PrefixCache, APageAfterAnotherBeginningIsNone) {
  Random random(7);
  Chat chat({.max_requests = 2});
  const std::vector<int32_t> begin = RandomIds(random, 16), page = RandomIds(random, 16);
  std::vector<int32_t> same_begin = begin, same_page = RandomIds(random, 16), prompt = begin;
  Append(same_begin, RandomIds(random, 16));
  Append(same_page, page);
  Append(prompt, page);
  Append(prompt, RandomIds(random, 1));
  chat.Turn(same_begin);
  chat.Turn(same_page);
  const std::vector<int32_t> ids = chat.Turn(prompt);
  EXPECT_EQ(chat.engine.counters().cached_tokens, 16);
  EXPECT_EQ(ids, Chat({.max_requests = 2, .max_prefixes = 0}).Turn(prompt));
}

TEST(PrefixCache, ChangesNoToken) {
  int64_t cached = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto steps_in_flight = static_cast<int32_t>(seed % 2);
    Chat kept({.max_requests = 3,
               .max_step_tokens = random.Between(8, 40),
               .cache_tokens = random.Between(8, 20) * 16,
               .max_prefixes = static_cast<int32_t>(random.Between(1, 6))},
              steps_in_flight);
    Chat plain({.max_requests = 3, .max_prefixes = 0});
    std::vector<std::vector<int32_t>> chats = {RandomIds(random, 20)};
    for (int turn = 0; turn < 30; ++turn) {
      std::vector<EngineRequest> requests;
      for (int64_t i = random.Between(1, 3); i > 0; --i) {
        std::vector<int32_t> prompt = chats[static_cast<size_t>(random.Below(std::ssize(chats)))];
        prompt.resize(static_cast<size_t>(random.Between(1, std::ssize(prompt))));
        Append(prompt, RandomIds(random, random.Between(0, 20)));
        if (std::ssize(prompt) > 40) prompt.resize(40);
        requests.push_back(MakeRequest(prompt, random.Between(1, 20)));
        requests.back().params.seed = random.Bits();
        requests.back().params.temperature = random.Coin() ? 0.0f : 1.0f;
      }
      std::vector<RequestAddress> addresses, plain_addresses;
      for (const EngineRequest& request : requests) {
        addresses.push_back(kept.client.Submit(request));
        plain_addresses.push_back(plain.client.Submit(request));
      }
      while (kept.engine.HasWork()) kept.client.Take(kept.engine.Step());
      while (plain.engine.HasWork()) plain.client.Take(plain.engine.Step());
      for (size_t i = 0; i < requests.size(); ++i) {
        const Received& received = kept.client.Of(addresses[i]);
        ASSERT_EQ(received.ids, plain.client.Of(plain_addresses[i]).ids) << turn;
        chats.push_back(requests[i].prompt);
        Append(chats.back(), received.ids);
      }
    }
    cached += kept.engine.counters().cached_tokens;
    EXPECT_EQ(kept.engine.counters().free_pages, kept.runner.info().pages);
  }
  EXPECT_GT(cached, 1500);
}

}  // namespace
}  // namespace sluice::test
