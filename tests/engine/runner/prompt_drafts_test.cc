// Drafts from a request's own text bring its tokens in fewer steps, and no other tokens.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/runner/prompt_lookup.h"
#include "sluice/engine.hpp"
#include "sluice/runner_thread.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/tiny_runner.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

using engine::DraftPace;
using engine::LookUp;

std::vector<int32_t> Found(const std::vector<int32_t>& tokens, int64_t most) {
  const std::span<const int32_t> found = LookUp(tokens, most);
  return {found.begin(), found.end()};
}

TEST(LookUp, GivesWhatFollowedTheSameTokens) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(Found({1, 2, 3, 4, 5, 1, 2, 3}, 2), (Ids{4, 5}));
  EXPECT_EQ(Found({1, 2, 3, 4, 5, 1, 2, 3}, 9), (Ids{4, 5, 1, 2, 3}));  // as much as there is
  EXPECT_EQ(Found({1, 2, 3, 4, 9, 2, 3}, 4), Ids{});                    // two tokens alike are few
  EXPECT_EQ(Found({1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3}, 1), Ids{8});       // the later one
  EXPECT_EQ(Found({0, 1, 2, 3, 7, 9, 1, 2, 3, 8, 0, 1, 2, 3}, 1), Ids{7});  // the longer match
  EXPECT_EQ(Found({4, 4, 4, 4}, 3), Ids{4});
  EXPECT_EQ(Found({1, 2, 3, 4, 1, 2, 3}, 0), Ids{});
  EXPECT_EQ(Found({1, 2, 3}, 5), Ids{});
  EXPECT_EQ(Found({}, 5), Ids{});
}

// What it finds is right: the tokens before it are the last ones.
TEST(LookUp, FindsAPlaceWithTheSameTokens) {
  Random random(3);
  int found = 0;
  for (int row = 0; row < 2000; ++row) {
    std::vector<int32_t> tokens(static_cast<size_t>(random.Between(0, 60)));
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(3));
    const std::span<const int32_t> drafts = LookUp(tokens, 5);
    if (drafts.empty()) continue;
    ++found;
    const auto at = static_cast<size_t>(drafts.data() - tokens.data());
    ASSERT_GE(at, 3u);
    for (size_t i = 1; i <= 3; ++i) EXPECT_EQ(tokens[at - i], tokens[tokens.size() - i]);
  }
  EXPECT_GT(found, 1000);
}

TEST(DraftPace, GivesUpForAWhileWhereDraftsAreWrong) {
  DraftPace pace;
  int64_t drafted = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t drafts = pace.Next(8);
    drafted += drafts;
    if (drafts > 0) pace.Take(drafts, 0);
  }
  EXPECT_LE(drafted, 16);  // of 1000 steps
}

TEST(DraftPace, GrowsWhileDraftsAreRight) {
  DraftPace pace;
  int64_t last = 0;
  for (int step = 0; step < 20; ++step) {
    const int64_t drafts = pace.Next(8);
    EXPECT_GE(drafts, last);
    last = drafts;
    pace.Take(drafts, drafts);
  }
  EXPECT_EQ(last, 8);
  EXPECT_EQ(pace.Next(3), 3);
  // One in two right: fewer than ever pays.
  for (int step = 0; step < 20; ++step) pace.Take(2, 1);
  EXPECT_EQ(pace.Next(8), 1);
}

const Checkpoint& LongTiny() {
  static TinyFiles files({.context = 256});
  static const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  return checkpoint;
}

// Texts that repeat themselves, and others.
std::vector<EngineRequest> MixedRequests(const std::vector<SamplingParams>& all) {
  const std::string prompts[] = {
      "one two three four five six one two three four five six one two three", "It was",
      "for you and me, for you and me, for you and"};
  std::vector<EngineRequest> requests;
  for (const SamplingParams& params : all) {
    for (const std::string& prompt : prompts) {
      EngineRequest request =
          MakeRequest(LongTiny().tokenizer().Encode(prompt), 3 + 30 * (std::ssize(requests) % 7));
      request.params = params;
      if (requests.size() % 2 == 1) request.params.temperature = 0.0f;
      request.prompt_logprobs = requests.size() % 5 == 4 ? std::optional(2) : std::nullopt;
      requests.push_back(request);
    }
  }
  return requests;
}

struct Outcome {
  std::vector<Received> received;
  int64_t preemptions = 0;
  GenerationStats stats = {};
};

Outcome RunAll(const std::vector<EngineRequest>& requests, const ModelRunnerOptions& options,
               int32_t steps_in_flight, int32_t abort_every = 0) {
  ModelRunner runner(LongTiny(), options);
  RunnerThread thread(runner);
  Engine engine(thread, std::nullopt, {.steps_in_flight = steps_in_flight});
  EngineClient client(engine, static_cast<int32_t>(requests.size()));
  std::vector<RequestAddress> addresses;
  Outcome outcome;
  for (const EngineRequest& request : requests) addresses.push_back(client.Submit(request));
  for (int step = 0; engine.HasWork(); ++step) {
    client.Take(engine.Step());
    if (abort_every > 0 && step % abort_every == 0) {
      const RequestAddress address = addresses[static_cast<size_t>(step) % addresses.size()];
      if (!client.HasEnded(address)) client.Abort(address);
    }
  }
  for (const RequestAddress& address : addresses) outcome.received.push_back(client.Of(address));
  outcome.preemptions = engine.counters().preemptions;
  outcome.stats = runner.stats();
  return outcome;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void ExpectSame(const Received& a, const Received& b, const std::string& where) {
  EXPECT_EQ(a.ids, b.ids) << where;
  EXPECT_EQ(a.end, b.end) << where;
  EXPECT_EQ(a.message, b.message) << where;
  EXPECT_EQ(a.ranks, b.ranks) << where;
  EXPECT_EQ(a.logprob_ids, b.logprob_ids) << where;
  EXPECT_EQ(a.prompt_ids, b.prompt_ids) << where;
  EXPECT_TRUE(SameBits(a.logprobs, b.logprobs)) << where;
  EXPECT_TRUE(SameBits(a.logprob_values, b.logprob_values)) << where;
  EXPECT_TRUE(SameBits(a.prompt_logprobs, b.prompt_logprobs)) << where;
}

class DraftsOn : public ::testing::TestWithParam<Backend> {};

TEST_P(DraftsOn, GiveTheSameTokensInFewerSteps) {
  if (kSlowdown > 1 && GetParam() == Backend::kRef && AvailableBackends().size() > 1) {
    GTEST_SKIP() << "takes long; nothing of drafts is a backend's own";
  }
  const std::vector<EngineRequest> requests = MixedRequests(AllParams());
  // The definition takes 22 s for all of it; with a sanitizer each backend has a head of its own.
  const bool is_slow = GetParam() == Backend::kRef || kSlowdown > 1;
  const bool has_planes = kSlowdown > 1 && GetParam() == AvailableBackends().front();
  for (const HeadChoice head : {HeadChoice::kDense, HeadChoice::kDither4}) {
    if (is_slow && (head == HeadChoice::kDense) == has_planes) continue;
    ModelRunnerOptions options{.max_requests = 6,
                               .max_step_tokens = 24,
                               .cache_tokens = 400,
                               .planes = HeadPlanesFor(head, LongTiny(), {}),
                               .backend = GetParam()};
    const Outcome plain = RunAll(requests, options, 0);
    for (const int32_t drafts : {1, 4, 15}) {
      if (is_slow && drafts != 4) continue;
      options.draft_tokens = drafts;
      for (const int32_t steps_in_flight : {0, 1}) {
        const Outcome drafted = RunAll(requests, options, steps_in_flight);
        const std::string where = std::string(Name(head)) + ", " + std::to_string(drafts) +
                                  " drafts, " + std::to_string(steps_in_flight) + " in flight, ";
        for (size_t i = 0; i < requests.size(); ++i) {
          ExpectSame(drafted.received[i], plain.received[i], where + std::to_string(i));
        }
        EXPECT_GT(drafted.stats.accepted_draft_tokens, 50) << where;
        EXPECT_GT(drafted.stats.draft_tokens, drafted.stats.accepted_draft_tokens) << where;
        EXPECT_GT(drafted.preemptions, 0) << where;
        // With a step in flight a plan counts with all drafts, and waits where they might not fit.
        if (steps_in_flight == 0) {
          EXPECT_LT(drafted.stats.steps, plain.stats.steps) << where;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftsOn, ::testing::ValuesIn(AvailableBackends()),
                         [](const auto& param) { return TestNameOf(param.param); });

// Whenever a request ends, what it took is free again: all of them run a second time.
TEST(Drafts, LeaveNothingBehindWhereRequestsAreAborted) {
  const std::vector<EngineRequest> requests = MixedRequests(AllParams());
  const ModelRunnerOptions options{
      .max_requests = 3, .max_step_tokens = 24, .cache_tokens = 256, .draft_tokens = 15};
  for (const int32_t abort_every : {2, 3, 5}) {
    if (kSlowdown > 1 && abort_every != 3) continue;
    const Outcome outcome = RunAll(requests, options, 1, abort_every);
    for (const Received& received : outcome.received) {
      EXPECT_NE(received.end, GenerationEnd::kNone);
      EXPECT_NE(received.end, GenerationEnd::kEngineLost) << received.message;
    }
  }
}

TEST(Drafts, AreBounded) {
  for (const int32_t drafts : {-1, 16}) {
    ExpectError([&] { ModelRunner(Tiny(), {.draft_tokens = drafts}); }, "draft_tokens",
                std::to_string(drafts), "[0, 15]");
  }
}

}  // namespace
}  // namespace sluice::test
