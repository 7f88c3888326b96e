// Log-probabilities of prompts on their way to a client: whole, once, and in front of the text,
// whatever side of a process boundary it is on, in what pieces they come and whether they wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "link/frontend/held_rows.h"
#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"
#include "tests/link/collected.h"
#include "tests/link/frontend/raw_frontend.h"
#include "tests/link/letters.h"
#include "tests/link/one_engine.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

// A text of 30 letters in front of the stop.
constexpr std::string_view kScript = "theladysailedhertinyblueboatagstop";

std::vector<int32_t> Prompt(int64_t length) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>(i * 7 % 26));
  return prompt;
}

// By the script's rule.
void ExpectScored(const Collected& got, const ClientRequest& request, int64_t vocab) {
  Collected expected;
  for (size_t i = 1; i < request.prompt.size() && request.prompt_logprobs.has_value(); ++i) {
    const int32_t id = request.prompt[i];
    expected.prompt_logprobs.push_back(ScriptLogprob(id));
    expected.prompt_ranks.push_back(ScriptRank(id));
    for (int32_t k = 0; k <= *request.prompt_logprobs; ++k) {
      expected.prompt_ids.push_back(static_cast<int32_t>((id + k) % vocab));
      expected.prompt_values.push_back(ScriptLogprob(expected.prompt_ids.back()));
    }
  }
  EXPECT_EQ(got.prompt_logprobs, expected.prompt_logprobs);
  EXPECT_EQ(got.prompt_ranks, expected.prompt_ranks);
  EXPECT_EQ(got.prompt_ids, expected.prompt_ids);
  EXPECT_EQ(got.prompt_values, expected.prompt_values);
}

struct Setting {
  StopAt stop_at;
  bool is_remote;
  int32_t steps_in_flight;
  int64_t step_tokens;
  int64_t pages;  // few: requests are preempted
};

class PromptsOver : public ::testing::TestWithParam<Setting> {
 protected:
  static void RunAll(Client& client) {
    Collectors got;
    std::map<uint64_t, ClientRequest> asked;
    for (const OutputMode mode :
         {OutputMode::kDelta, OutputMode::kCumulative, OutputMode::kFinal}) {
      for (const int64_t length : {1, 2, 30, 90}) {
        for (const int64_t max_tokens : {0, 1, 40}) {
          for (const int32_t listed : {-1, 0, 5}) {
            ClientRequest request = Asks(max_tokens, {"stop"});
            request.prompt = Prompt(length);
            if (listed >= 0) request.prompt_logprobs = listed;
            request.mode = mode;
            request.stream_interval = 1 + length % 4;
            const RequestId id = client.Submit(request);
            got.Expect(id, mode);
            asked[id.value] = request;
          }
        }
      }
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (client.live_requests() > 0 && std::chrono::steady_clock::now() < end) {
      got.Add(client.Poll(std::chrono::milliseconds(100)));
    }
    ASSERT_EQ(client.live_requests(), 0);
    for (const auto& [id, request] : asked) {
      const Collected& all = got[RequestId{id}];
      SCOPED_TRACE(std::string(Name(request.mode)) + ", prompt of " +
                   std::to_string(request.prompt.size()) + ", " +
                   std::to_string(request.max_tokens) + " tokens");
      ExpectScored(all, request, 27);
      EXPECT_EQ(all.end,
                request.max_tokens == 40 ? GenerationEnd::kStopString : GenerationEnd::kLength);
      const auto letters = static_cast<size_t>(std::min<int64_t>(request.max_tokens, 30));
      EXPECT_EQ(all.text, std::string(kScript).substr(0, letters));
      EXPECT_EQ(all.prompt_tokens, std::ssize(request.prompt));
    }
    const ClientCounters& counters = client.counters();
    EXPECT_EQ(counters.gaps + counters.disagreements + counters.unknown_rows + counters.resets, 0);
  }
};

TEST_P(PromptsOver, EveryClientGetsThemWholeOnceAndFirst) {
  const Setting& setting = GetParam();
  ScriptRunner runner({.vocab = 27,
                       .tokens = Ids(kScript),
                       .from_prompt = false,
                       .context = 200,
                       .max_requests = 16,
                       .max_step_tokens = 256,
                       .pages = setting.pages});
  Engine engine(runner, Letters(),
                {.steps_in_flight = setting.steps_in_flight, .step_tokens = setting.step_tokens});
  if (!setting.is_remote) {
    const auto client =
        MakeLocalClient(engine, InfoOf(Letters()), Letters(), {.stop_at = setting.stop_at});
    RunAll(*client);
  } else {
    EngineServer server(engine, InfoOf(Letters()), {.listen = LocalEndpoint()});
    std::jthread steps([&](const std::stop_token& stop) { server.Run(stop); });
    const std::string endpoints[] = {server.endpoint()};
    const auto client =
        ConnectClient(endpoints, Letters(), {.stop_at = setting.stop_at, .credits = 4});
    RunAll(*client);
  }
  EXPECT_EQ(engine.counters().preemptions > 0, setting.pages < 100);
}

std::vector<Setting> Settings() {
  std::vector<Setting> all;
  for (const StopAt stop_at : {StopAt::kEngine, StopAt::kFrontend}) {
    for (const bool is_remote : {false, true}) {
      for (const int32_t steps_in_flight : {0, 1}) {
        all.push_back({stop_at, is_remote, steps_in_flight, 17, 1000});
        all.push_back({stop_at, is_remote, steps_in_flight, 256, 13});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, PromptsOver, ::testing::ValuesIn(Settings()),
                         [](const auto& setting) {
                           const Setting& is = setting.param;
                           return std::string(is.is_remote ? "Remote" : "Local") +
                                  (is.stop_at == StopAt::kEngine ? "StopAtEngine"
                                                                 : "StopAtFrontend") +
                                  std::to_string(is.steps_in_flight) + "InFlight" +
                                  std::to_string(is.step_tokens) + "AStep";
                         });

// A piece of the prompt of a request that asked for one entry beside each token.
struct Piece {
  Piece(int64_t first, int64_t count)
      : logprobs(static_cast<size_t>(count), -1.0f),
        ranks(static_cast<size_t>(count), 1),
        ids(static_cast<size_t>(2 * count), 3),
        values(static_cast<size_t>(2 * count), -2.0f),
        view{first, logprobs, ranks, 2, ids, values} {}

  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  std::vector<int32_t> ids;
  std::vector<float> values;
  PromptLogprobs view;
};

TEST(PromptRows, ThoseThatCannotBeBelievedEndTheirRequestAlone) {
  struct Bad {
    const char* name;
    std::function<void(OutputRow&)> make;
    int64_t ClientCounters::* counter = &ClientCounters::gaps;
  };
  static const Piece good(3, 2), twice(2, 2), gap(4, 1), longer(3, 3), rest(3, 2);
  static const std::vector<int32_t> one = {1}, foreign = {3, 3, 3, 27};
  const Bad all[] = {
      {"a piece again", [](OutputRow& row) { row.prompt = twice.view; }},
      {"a gap", [](OutputRow& row) { row.prompt = gap.view; }},
      {"more than the prompt has", [](OutputRow& row) { row.prompt = longer.view; }},
      {"the largest place", [](OutputRow& row) { row.prompt.first_token = INT64_MAX; }},
      {"the smallest place", [](OutputRow& row) { row.prompt.first_token = INT64_MIN; }},
      {"another width", [](OutputRow& row) { row.prompt.width = 1; }},
      {"a width that no memory has", [](OutputRow& row) { row.prompt.width = INT32_MAX; }},
      {"ranks that are missing", [](OutputRow& row) { row.prompt.ranks = {}; }},
      {"ids that are missing", [](OutputRow& row) { row.prompt.ids = {}; }},
      {"values that are missing", [](OutputRow& row) { row.prompt.values = {}; }},
      {"a foreign id", [](OutputRow& row) { row.prompt.ids = foreign; },
       &ClientCounters::foreign_ids},
      {"a token in front of them",
       [](OutputRow& row) {
         row.prompt = {};
         row.ids = one;
       }},
      {"an end without them",
       [](OutputRow& row) {
         row.prompt = {};
         row.end = GenerationEnd::kLength;
       }},
  };
  for (const Bad& bad : all) {
    SCOPED_TRACE(bad.name);
    OneEngine engine(Letters());
    ClientRequest request = Asks();
    request.prompt = Prompt(5);
    request.prompt_logprobs = 1;
    const RequestId lost = engine.Add(request);
    const RequestId other = engine.Add(request);
    const Piece first(1, 2);
    for (const RequestId id : {lost, other}) {
      engine.table.Take(0, {.address = engine.AddressOf(id), .prompt = first.view});
    }
    EXPECT_EQ(engine.Collect(), 0u);
    OutputRow row = {.address = engine.AddressOf(lost), .prompt = good.view};
    bad.make(row);
    engine.table.Take(0, row);
    EXPECT_EQ(engine.table.counters.*bad.counter, 1);
    engine.table.Take(0, {.address = engine.AddressOf(other), .prompt = rest.view});
    EXPECT_EQ(engine.Collect(), 2u);
    EXPECT_EQ(engine.got[lost].end, GenerationEnd::kEngineLost);
    EXPECT_TRUE(engine.got[lost].prompt_logprobs.empty());
    EXPECT_FALSE(engine.got.HasEnded(other));
    EXPECT_EQ(engine.got[other].prompt_logprobs.size(), 4u);
  }
  // Where none were asked for.
  OneEngine engine(Letters());
  ClientRequest request = Asks();
  request.prompt = Prompt(5);
  const RequestId id = engine.Add(request);
  engine.table.Take(0, {.address = engine.AddressOf(id), .prompt = Piece(1, 4).view});
  engine.Collect();
  EXPECT_EQ(engine.got[id].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(engine.table.counters.gaps, 1);
}

TEST(PromptRows, ARequestThatEndsBeforeTheyAreWholeHasNone) {
  for (const GenerationEnd end : {GenerationEnd::kCancelled, GenerationEnd::kRejected,
                                  GenerationEnd::kStatus, GenerationEnd::kEngineLost}) {
    OneEngine engine(Letters());
    ClientRequest request = Asks();
    request.prompt = Prompt(5);
    request.prompt_logprobs = 1;
    const RequestId id = engine.Add(request);
    engine.table.Take(0, {.address = engine.AddressOf(id), .prompt = Piece(1, 3).view});
    engine.table.Take(0, {.address = engine.AddressOf(id), .end = end, .message = "why"});
    EXPECT_EQ(engine.Collect(), 1u);
    EXPECT_EQ(engine.got[id].end, end);
    EXPECT_TRUE(engine.got[id].prompt_logprobs.empty());
    EXPECT_EQ(engine.table.counters.gaps, 0);
  }
}

// The next request of a place knows nothing of the last one's.
TEST(PromptRows, NothingStaysForTheNextRequestOfAPlace) {
  OneEngine engine(Letters(), StopAt::kEngine, 1);
  ClientRequest request = Asks();
  request.prompt = Prompt(5);
  request.prompt_logprobs = 1;
  request.mode = OutputMode::kFinal;
  for (int round = 0; round < 3; ++round) {
    const RequestId id = engine.Add(request);
    engine.table.Take(0, {.address = engine.AddressOf(id), .prompt = Piece(1, 3).view});
    if (round != 1) {
      engine.table.Take(0, {.address = engine.AddressOf(id), .prompt = Piece(4, 1).view});
    }
    engine.Give(id, 0, "", round == 1 ? GenerationEnd::kCancelled : GenerationEnd::kLength);
    EXPECT_EQ(engine.Collect(), 1u);
    EXPECT_EQ(engine.got[id].prompt_logprobs.size(), round == 1 ? 0u : 4u);
  }
}

TEST(PromptRows, RefusesWhatIsOutOfRangeByName) {
  OneEngine engine(Letters());
  const auto refused = [&](int32_t listed) {
    ClientRequest request = Asks();
    request.prompt_logprobs = listed;
    return RefusedFor([&] { engine.table.Add(0, std::move(request)); });
  };
  EXPECT_EQ(refused(-1), "prompt_logprobs");
  EXPECT_EQ(refused(21), "prompt_logprobs");
  EXPECT_EQ(refused(INT32_MAX), "prompt_logprobs");
  EXPECT_EQ(refused(20), "");
}

// What waits for credits is split again, so that no frame has more than a frontend takes.
TEST(PromptRows, WhatWasHeldComesInFramesOfBoundedSize) {
  constexpr int64_t kPieces = 400;
  constexpr int64_t kTokens = 2000;  // of a piece, two entries each: 1.6 million
  link::HeldRows held(3);
  const std::vector<int32_t> ids = {1, 2};
  held.Add({.address = {2, 5}, .ids = ids});
  for (int64_t i = 0; i < kPieces; ++i) {
    held.Add({.address = {0, 1}, .prompt = Piece(1 + i * kTokens, kTokens).view});
  }
  held.Add({.address = {0, 1}, .ids = ids, .end = GenerationEnd::kLength, .message = "m"});
  held.Add({.address = {1, 1}, .prompt = Piece(1, 10).view});
  EXPECT_EQ(held.tokens(), 4);
  int64_t frames = 0, next = 1, dropped = 0;
  std::map<int32_t, int64_t> tokens, ends, pieces;
  while (!held.IsEmpty()) {
    int64_t entries = 0;
    const int64_t before = held.tokens();
    for (const OutputRow& row : held.Next(size_t{1} << 20)) {
      const int32_t slot = row.address.slot;
      entries += std::ssize(row.prompt.ids);
      EXPECT_EQ(row.prompt.ids.size(), 2 * row.prompt.logprobs.size());
      EXPECT_EQ(ends[slot], 0) << "a row behind the end";
      pieces[slot] += std::ssize(row.prompt.logprobs);
      tokens[slot] += std::ssize(row.ids);
      ends[slot] += row.end != GenerationEnd::kNone ? 1 : 0;
      if (slot != 0 || row.prompt.IsEmpty()) continue;
      EXPECT_EQ(row.prompt.first_token, next);
      next += std::ssize(row.prompt.logprobs);
    }
    EXPECT_LE(entries, (1 << 20) / 15);  // bytes: an id, a value, and half of what has one a token
    held.DropNext();
    dropped += before - held.tokens();
    // More of the same request while it waits.
    if (++frames == 1) held.Add({.address = {2, 5}, .first_token = 2, .ids = ids});
  }
  EXPECT_EQ(frames, 24);  // of 35,000 tokens each
  EXPECT_EQ(pieces[0], kPieces * kTokens);
  EXPECT_EQ(pieces[1], 10);
  EXPECT_EQ(tokens[0], 2);
  EXPECT_EQ(tokens[2], 4);
  EXPECT_EQ(ends[0], 1);
  EXPECT_EQ(dropped, 6);
  EXPECT_EQ(held.tokens(), 0);
}

TEST(PromptRows, AFrontendWithoutCreditsGetsThemLaterAndOneWithoutWordsAtTheEnd) {
  for (const bool is_stopped : {false, true}) {
    ScriptOptions script = CountingScript();
    script.max_step_tokens = 50;
    RunningServer server(script);
    RawFrontend frontend(server.endpoint());
    frontend.Connect(1);
    EngineRequest request = CountingRequest(0, 0, 5, 10);
    for (int32_t i = 1; i < 300; ++i) request.prompt.push_back(i);
    request.prompt_logprobs = 20;
    frontend.Add(request);
    EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().ended == 1; }));
    if (is_stopped) {
      server.Stop();
    } else {
      frontend.Take(frontend.Expect(link::FrameType::kOutput));
      EXPECT_TRUE(frontend.HearsNothing());
      frontend.Grant(10);
    }
    frontend.Collect(1);
    const auto& output = frontend.outputs[{0, 0}];
    ASSERT_EQ(output.prompt_logprobs.size(), 299u);
    for (int32_t i = 1; i < 300; ++i) {
      EXPECT_EQ(output.prompt_logprobs[static_cast<size_t>(i - 1)], ScriptLogprob(i));
    }
    EXPECT_EQ(output.ids, Counted(5, 10));
  }
}

}  // namespace
}  // namespace sluice::test
