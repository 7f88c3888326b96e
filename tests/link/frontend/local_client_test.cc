// A client of an engine in this process: the same promises as across processes, on one thread.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "sluice/engine.hpp"
#include "sluice/script_runner.hpp"
#include "tests/link/collected.h"
#include "tests/link/letters.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;

struct Local {
  explicit Local(std::string_view letters, const LocalClientOptions& options = {},
                 const EngineOptions& engine_options = {}, ScriptOptions script = {})
      : runner((script.vocab = 27, script.tokens = Ids(letters), script)),
        engine(runner, Letters(), engine_options),
        client(MakeLocalClient(engine, InfoOf(Letters()), Letters(), options)) {}

  RequestId Submit(ClientRequest request) {
    const OutputMode mode = request.mode;
    const RequestId id = client->Submit(std::move(request));
    got.Expect(id, mode);
    return id;
  }
  size_t Poll(milliseconds timeout = milliseconds(0)) {
    const auto outputs = client->Poll(timeout);
    got.Add(outputs);
    return outputs.size();
  }
  const Collected& Finish(RequestId id) {
    for (int i = 0; i < 10'000 && !got.HasEnded(id); ++i) Poll();
    return got[id];
  }

  ScriptRunner runner;
  Engine engine;
  std::unique_ptr<Client> client;
  Collectors got;
};

constexpr StopAt kPlacements[] = {StopAt::kEngine, StopAt::kFrontend};

TEST(LocalClient, KnowsWhatTheEngineKnows) {
  Local local("abc");
  EXPECT_EQ(local.client->info().vocab, 27);
  EXPECT_EQ(local.client->info().context, local.runner.info().context);
  EXPECT_EQ(local.client->info().max_client_requests, EngineOptions{}.max_client_requests);
  EXPECT_EQ(local.client->info().tokenizer_hash, TokenizerHash(Letters()));
  EXPECT_FALSE(local.client->info().version.empty());
  EXPECT_EQ(local.client->event_fd(), -1);
  EXPECT_EQ(local.client->health(), EngineHealth::kReady);
  EXPECT_TRUE(local.client->Poll(std::chrono::hours(1)).empty());  // nothing can come
}

TEST(LocalClient, ARequestHasOneEnd) {
  for (const StopAt stop_at : kPlacements) {
    Local local("gostop", {.stop_at = stop_at});
    const RequestId by_stop = local.Submit(Asks(100, {"stop"}));
    const RequestId by_length = local.Submit(Asks(4));
    EXPECT_EQ(local.client->live_requests(), 2);
    EXPECT_EQ(local.Finish(by_stop).end, GenerationEnd::kStopString);
    EXPECT_EQ(local.got[by_stop].text, "go");
    EXPECT_EQ(local.got[by_stop].output_tokens, 6);
    EXPECT_EQ(local.Finish(by_length).end, GenerationEnd::kLength);
    EXPECT_EQ(local.got[by_length].text, "gost");
    EXPECT_EQ(local.got[by_length].prompt_tokens, 1);
    EXPECT_EQ(local.client->live_requests(), 0);
    while (local.engine.HasWork()) EXPECT_EQ(local.Poll(), 0u);
    EXPECT_EQ(local.engine.counters().ended, 2);
    EXPECT_EQ(local.client->counters().aborts, stop_at == StopAt::kFrontend ? 1 : 0);
    EXPECT_EQ(local.client->counters().disagreements, 0);
  }
}

TEST(LocalClient, APollGivesWhatAStepGave) {
  Local local("ab");
  const RequestId id = local.Submit(Asks(4));
  EXPECT_EQ(local.Poll(), 1u);
  EXPECT_EQ(local.got[id].text, "a");
  EXPECT_EQ(local.Poll(), 1u);
  EXPECT_EQ(local.got[id].text, "ab");
}

TEST(LocalClient, AnAbortEndsWithTheNextPoll) {
  Local local("abc");
  const RequestId early = local.Submit(Asks());
  local.client->Abort(early);  // in front of the first step
  const RequestId id = local.Submit(Asks());
  local.Poll();
  EXPECT_EQ(local.got[early].end, GenerationEnd::kCancelled);
  EXPECT_EQ(local.got[early].output_tokens, 0);
  local.client->Abort(id);
  local.client->Abort(id);
  local.client->Abort(RequestId{77});
  local.Poll();
  EXPECT_EQ(local.got[id].end, GenerationEnd::kCancelled);
  EXPECT_EQ(local.got[id].text, "a");
  local.client->Abort(id);
  while (local.engine.HasWork()) local.Poll();
  EXPECT_EQ(local.engine.counters().aborted, 2);
  EXPECT_EQ(local.engine.counters().stale_aborts, 0);
}

// Slots and generations: as many requests as there are places, over and over.
TEST(LocalClient, PlacesAreTakenAgainAndNothingIsLost) {
  for (const StopAt stop_at : kPlacements) {
    Local local("stopgo", {.stop_at = stop_at}, {.steps_in_flight = 1, .max_client_requests = 3},
                {.burst = 3});
    int ended = 0;
    int submitted = 0;
    std::map<uint64_t, bool> seen;
    while (ended < 100) {
      while (submitted < 100) {
        try {
          const RequestId id = local.Submit(Asks(1 + submitted % 9, {"go", "opg"}));
          EXPECT_TRUE(seen.emplace(id.value, true).second);
          ++submitted;
          if (submitted % 7 == 0) local.client->Abort(id);
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), ErrorCode::kExhausted);
          break;
        }
      }
      for (const ClientOutput& output : local.client->Poll(milliseconds(0))) {
        ended += output.end != GenerationEnd::kNone ? 1 : 0;
        EXPECT_EQ(output.text.find("go"), std::string_view::npos);
        local.got.Add({&output, 1});
      }
    }
    EXPECT_EQ(local.client->live_requests(), 0);
    const ClientCounters& counters = local.client->counters();
    EXPECT_EQ(counters.unknown_rows + counters.repeated_ends + counters.gaps +
                  counters.foreign_ids + counters.disagreements,
              0);
  }
}

TEST(LocalClient, WhatTheEngineRejectsEndsWithItsReason) {
  Local local("abc", {}, {.max_waiting = 1}, {.max_requests = 1});
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(local.Submit(Asks(3)));
  int rejected = 0;
  for (const RequestId id : ids) {
    const Collected& all = local.Finish(id);
    if (all.end == GenerationEnd::kRejected) {
      ++rejected;
      EXPECT_FALSE(all.message.empty());
      EXPECT_EQ(all.code, ErrorCode::kExhausted);
    } else {
      EXPECT_EQ(all.text, "abc");
    }
  }
  EXPECT_GT(rejected, 0);
}

TEST(LocalClient, ARunnerThatThrowsEndsAllRequestsAndIsNoMore) {
  Local local("abc", {}, {}, {.before_step = [](int64_t step) {
                if (step == 2) throw std::runtime_error("no device");
              }});
  const RequestId one = local.Submit(Asks());
  const RequestId two = local.Submit(Asks());
  EXPECT_EQ(local.Finish(one).end, GenerationEnd::kEngineLost);
  EXPECT_EQ(local.Finish(two).end, GenerationEnd::kEngineLost);
  EXPECT_EQ(local.got[one].text, "ab");
  EXPECT_NE(local.got[one].message.find("no device"), std::string::npos);
  EXPECT_EQ(local.client->health(), EngineHealth::kDead);
  EXPECT_EQ(local.client->live_requests(), 0);
  EXPECT_EQ(RefusedFor([&] { local.client->Submit(Asks()); }), "engine");
  EXPECT_TRUE(local.client->Poll(milliseconds(1)).empty());
}

TEST(LocalClient, AnObserverSeesWhatTheEngineGetsOrStopsIt) {
  bool throws = false;
  std::vector<EngineRequest> seen;
  Local local("abc", {.observer = [&](RequestId, const EngineRequest& request) {
                if (throws) throw std::runtime_error("full");
                seen.push_back(request);
              }});
  const RequestId id = local.Submit(Asks(3));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].params.seed, local.client->Seed(id));
  EXPECT_EQ(seen[0].prompt, (std::vector<int32_t>{0}));
  throws = true;
  EXPECT_THROW(local.client->Submit(Asks()), std::runtime_error);
  EXPECT_EQ(local.client->live_requests(), 1);
  EXPECT_EQ(local.Finish(id).text, "abc");
}

TEST(LocalClient, TheClientsEndEndsItsRequests) {
  Local local("abc");
  local.Submit(Asks());
  local.Poll();
  local.client.reset();
  while (local.engine.HasWork()) local.engine.Step();
  EXPECT_EQ(local.engine.counters().ended, 1);
}

}  // namespace
}  // namespace sluice::test
