// A short soak: requests of every kind, frontends that leave while theirs run, pages that run out.
#include <gtest/gtest.h>

#include "bench/serve/engine_soak.h"
#include "tests/link/letters.h"

namespace sluice::bench {
namespace {

void ExpectClean(const SoakOptions& options) {
  const SoakResult result =
      RunSoak(options, test::Letters(), test::Ids("onceuponatimetherewasamillerwhohadthreesons"),
              [](int64_t, int64_t) {});
  EXPECT_EQ(result.requests, options.requests);
  EXPECT_EQ(result.wrong_texts, 0);
  EXPECT_EQ(result.wrong_ends, 0);
  EXPECT_EQ(result.unexpected_rows, 0);
  EXPECT_EQ(result.running, 0);
  EXPECT_EQ(result.waiting, 0);
  EXPECT_EQ(result.lost_pages, 0);
  EXPECT_EQ(result.unbalanced_tokens, 0);
  // It had everything in it.
  for (const GenerationEnd end : {GenerationEnd::kStopString, GenerationEnd::kStopToken,
                                  GenerationEnd::kLength, GenerationEnd::kCancelled}) {
    EXPECT_GT(result.ends[static_cast<size_t>(end)], 0) << Name(end);
  }
  EXPECT_GT(result.left_behind, 0);
  EXPECT_GT(result.reconnects, options.frontends);
  EXPECT_GT(result.engine.preemptions, 0);
}

TEST(Soak, LeavesNothingBehindWhileStepsWait) {
  ExpectClean({.requests = 20'000, .reconnect = 500, .steps_in_flight = 0, .seed = 3});
}

TEST(Soak, LeavesNothingBehindWithAStepInFlight) {
  ExpectClean({.requests = 20'000, .reconnect = 500, .steps_in_flight = 1, .seed = 4});
}

TEST(Soak, LeavesNothingBehindWithBursts) {
  ExpectClean({.requests = 20'000, .frontends = 3, .reconnect = 700, .burst = 5, .seed = 5});
}

}  // namespace
}  // namespace sluice::bench
