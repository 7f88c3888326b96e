// Who waits, who runs, and who has to give way: the oldest first, and nobody starves.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/one_client.h"
#include "tests/engine/runner/checking_runner.h"

namespace sluice::test {
namespace {

TEST(EngineOrder, TakesARequestThatFillsTheCacheToItsLastToken) {
  CheckingOptions options;
  options.info.pages = 10;
  OneClient bench(options);
  // The last token is drawn and never read.
  ExpectSame(bench.Run(MakeRequest({1, 2, 3}, 38)),
             ExpectedOf(MakeRequest({1, 2, 3}, 38), options));
  EXPECT_EQ(bench.engine.counters().preemptions, 0);
}

TEST(EngineOrder, LetsSoManyWaitAndNoMore) {
  OneClient bench({}, {.max_waiting = 3, .max_waiting_tokens = 10});
  std::vector<RequestAddress> addresses;
  for (int32_t i = 0; i < 4; ++i) addresses.push_back(bench.client.Submit(MakeRequest({i, 1}, 2)));
  bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.client.Of(addresses[3]).message, "waiting requests = 4 is not allowed: [0, 3]");
  // Those that run wait no more.
  addresses.push_back(bench.client.Submit(MakeRequest({7, 1, 1, 1, 1, 1}, 2)));
  addresses.push_back(bench.client.Submit(MakeRequest({8, 1, 1, 1, 1}, 2)));
  addresses.push_back(bench.client.Submit(MakeRequest({9, 1, 1, 1}, 2)));
  EXPECT_EQ(bench.engine.counters().waiting, 2);
  Drain(bench.engine, {&bench.client});
  EXPECT_EQ(bench.client.Of(addresses[4]).end, GenerationEnd::kLength);
  EXPECT_EQ(bench.client.Of(addresses[5]).message,
            "tokens of waiting prompts = 11 is not allowed: [0, 10]");
  EXPECT_EQ(bench.client.Of(addresses[6]).end, GenerationEnd::kLength);
  // One that was aborted while it waited counts no more either.
  for (int32_t i = 0; i < 3; ++i) bench.client.Abort(bench.client.Submit(MakeRequest({i, 1}, 2)));
  bench.client.Take(bench.engine.Step());
  for (int32_t i = 0; i < 3; ++i) bench.client.Submit(MakeRequest({i, 1}, 2));
  Drain(bench.engine, {&bench.client});
  EXPECT_EQ(bench.engine.counters().rejected, 2);
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineOrder, RunsInTheOrderOfArrivalAndALongPromptStarvesNobody) {
  CheckingOptions options;
  options.info.max_requests = 3;
  options.info.max_step_tokens = 8;
  OneClient bench(options);
  // A long prompt takes what is left of each step; what decodes beside it gets a token a step.
  const RequestAddress decoding = bench.client.Submit(MakeRequest({1}, 20));
  bench.client.Take(bench.engine.Step());
  const RequestAddress long_one = bench.client.Submit(MakeRequest(std::vector<int32_t>(50, 2), 3));
  const RequestAddress behind = bench.client.Submit(MakeRequest({3, 3}, 3));
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(bench.client.Of(long_one).rows, 0);
    EXPECT_EQ(bench.client.Of(behind).rows, 0) << "overtook";
    bench.client.Take(bench.engine.Step());
    EXPECT_EQ(bench.client.Of(decoding).rows, 2 + step);
  }
  EXPECT_EQ(bench.client.Of(long_one).rows, 1);
  EXPECT_EQ(bench.client.Of(behind).rows, 1);
  Drain(bench.engine, {&bench.client});
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineOrder, NobodyOvertakesARequestThatWaitsForPages) {
  CheckingOptions options;
  options.info.pages = 10;
  OneClient bench(options);
  bench.client.Submit(MakeRequest(std::vector<int32_t>(12, 1), 20));
  bench.client.Take(bench.engine.Step());
  const RequestAddress large = bench.client.Submit(MakeRequest(std::vector<int32_t>(30, 2), 3));
  const RequestAddress small = bench.client.Submit(MakeRequest({3}, 3));
  int64_t steps = 0;
  for (; bench.client.Of(large).rows == 0; ++steps) {
    EXPECT_EQ(bench.client.Of(small).rows, 0) << "overtook";
    bench.client.Take(bench.engine.Step());
  }
  EXPECT_GT(steps, 15);
  Drain(bench.engine, {&bench.client});
  EXPECT_EQ(bench.client.Of(small).end, GenerationEnd::kLength);
  ExpectIdle(bench.engine, bench.runner);
}

TEST(EngineOrder, GivesTheStepToAsManyAsItHasTokensFor) {
  CheckingOptions options;
  options.info.max_requests = 100;
  options.info.max_step_tokens = 50;
  OneClient bench(options, {.step_tokens = 7});
  for (int32_t i = 0; i < 20; ++i) bench.client.Submit(MakeRequest({i}, 20));
  for (int step = 0; step < 5; ++step) bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.runner.most_rows, 7);
  EXPECT_EQ(bench.engine.counters().running, 7);
  EXPECT_EQ(bench.engine.counters().waiting, 13);
  bench.client.Submit(MakeRequest(std::vector<int32_t>(40, 1), 20));
  Drain(bench.engine, {&bench.client});
  EXPECT_LE(bench.runner.longest_chunk, 7);
}

TEST(EngineOrder, APreemptedRequestIsTheYoungestAndTheNextToRun) {
  CheckingOptions options;
  options.info.page_tokens = 4;
  options.info.pages = 10;
  OneClient bench(options);
  const std::vector<EngineRequest> requests = {MakeRequest({1, 1}, 30), MakeRequest({2, 2}, 30),
                                               MakeRequest(std::vector<int32_t>(20, 3), 3)};
  const RequestAddress first = bench.client.Submit(requests[0]);
  const RequestAddress second = bench.client.Submit(requests[1]);
  while (bench.engine.counters().free_pages > 6) bench.client.Take(bench.engine.Step());
  const RequestAddress third = bench.client.Submit(requests[2]);  // which does not fit now
  while (bench.engine.counters().preemptions == 0) bench.client.Take(bench.engine.Step());
  EXPECT_EQ(bench.engine.counters().waiting, 2);
  const int64_t rows = bench.client.Of(second).rows;
  while (bench.engine.HasWork()) {
    const int64_t rows_of_first = bench.client.Of(first).rows;
    const bool had_ended = bench.client.HasEnded(first);
    bench.client.Take(bench.engine.Step());
    EXPECT_TRUE(had_ended || bench.client.Of(first).rows > rows_of_first) << "the oldest waits";
    if (bench.client.Of(second).rows == rows) {
      EXPECT_EQ(bench.client.Of(third).rows, 0) << "overtook";
    }
  }
  ExpectSame(bench.client.Of(first), ExpectedOf(requests[0], options));
  ExpectSame(bench.client.Of(second), ExpectedOf(requests[1], options));
  ExpectSame(bench.client.Of(third), ExpectedOf(requests[2], options));
  // What went through the model twice is the preempted one's.
  EXPECT_GT(bench.engine.counters().prompt_tokens, 24);
  ExpectIdle(bench.engine, bench.runner);
}

}  // namespace
}  // namespace sluice::test
