// Every request gets a Generator's tokens, whatever its neighbours, its chunks, preemptions and
// steps in flight; and what goes wrong with one request is its own.
#include "sluice/model_runner.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/decoder.hpp"
#include "sluice/runner_thread.hpp"
#include "tests/engine/one_stream.h"
#include "tests/engine/random_schedule.h"
#include "tests/engine/runner/tiny_runner.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

std::vector<Job> MixedJobs() {
  const std::string prompts[] = {"It was", "for you and me, and for everybody else who is here now",
                                 "return 0;"};
  std::vector<Job> jobs;
  for (const SamplingParams& params : AllParams()) {
    for (uint32_t choice = 0; choice < 2; ++choice) {
      const auto max_tokens = static_cast<int64_t>(1 + (jobs.size() * 5) % 13);
      jobs.push_back(JobWith(params, prompts[jobs.size() % 3], choice, max_tokens));
      jobs.back().stops_unseen = jobs.size() % 4 == 0;
    }
  }
  return jobs;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void ExpectSame(const Job& job, const Job& expected, bool has_cuts, const std::string& where) {
  EXPECT_EQ(job.failure, "") << where;
  EXPECT_EQ(job.Ids(), expected.Ids()) << where;
  ASSERT_EQ(job.tokens.size(), expected.tokens.size()) << where;
  for (size_t t = 0; t < job.tokens.size(); ++t) {
    EXPECT_EQ(job.tokens[t].status, expected.tokens[t].status) << where;
    EXPECT_EQ(job.tokens[t].rank, expected.tokens[t].rank) << where;
    if (has_cuts) {
      EXPECT_EQ(job.tokens[t].cut, expected.tokens[t].cut) << where;
    }
    EXPECT_TRUE(SameBits({&job.tokens[t].logprob, 1}, {&expected.tokens[t].logprob, 1})) << where;
  }
  EXPECT_EQ(job.logprob_width, expected.logprob_width) << where;
  EXPECT_EQ(job.logprob_ids, expected.logprob_ids) << where;
  EXPECT_TRUE(SameBits(job.logprob_values, expected.logprob_values)) << where;
}

class ModelRunnerOn : public ::testing::TestWithParam<Backend> {};

TEST_P(ModelRunnerOn, GivesAGeneratorsTokensHoweverStepsAreMade) {
  static const std::vector<Job> expected = Generated(MixedJobs());
  for (const HeadChoice head : {HeadChoice::kDense, HeadChoice::kDither4, HeadChoice::kStrict}) {
    const auto planes = HeadPlanesFor(head, Tiny(), {});
    for (const int steps_in_flight : {0, 1}) {
      // Room for a few: most wait, and pages run out.
      ModelRunner runner(Tiny(), {.max_requests = 6,
                                  .max_step_tokens = 24,
                                  .cache_tokens = 128,
                                  .planes = planes,
                                  .backend = GetParam()});
      std::vector<Job> jobs = MixedJobs();
      for (size_t i = 0; i < jobs.size(); ++i) jobs[i].max_tokens = expected[i].max_tokens;
      const auto seed = static_cast<uint64_t>(10 * static_cast<int>(head) + steps_in_flight);
      RandomSchedule schedule(runner, jobs, steps_in_flight, seed);
      schedule.Run();
      for (size_t i = 0; i < jobs.size(); ++i) {
        const std::string where = std::string(Name(head)) + ", " + std::to_string(steps_in_flight) +
                                  " in flight, job " + std::to_string(i);
        // A certified head gives the token alone.
        ExpectSame(jobs[i], expected[i], head == HeadChoice::kDense, where);
      }
      EXPECT_GT(schedule.preemptions(), 5);
      EXPECT_GT(schedule.chunks(), 5);
      EXPECT_GT(schedule.rows_without_tokens(), 20);
      EXPECT_EQ(schedule.discarded() > 0, steps_in_flight == 1);
      EXPECT_EQ(runner.stats().certified.rows > 0, planes.has_value());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelRunnerOn, ::testing::ValuesIn(AvailableBackends()),
                         [](const auto& param) { return TestNameOf(param.param); });

TEST(ModelRunner, GivesTheSameTokensOnAThreadOfItsOwn) {
  const std::vector<Job> expected = Generated(MixedJobs());
  std::vector<Job> jobs = MixedJobs();
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].max_tokens = expected[i].max_tokens;
  ModelRunner runner(Tiny(), {.max_requests = 6, .max_step_tokens = 24, .cache_tokens = 128});
  RunnerThread thread(runner);
  RandomSchedule(thread, jobs, 1, 5).Run();
  for (size_t i = 0; i < jobs.size(); ++i) {
    ExpectSame(jobs[i], expected[i], true, std::to_string(i));
  }
}

TEST_F(ModelRunnerTest, EndsARequestThatCannotBeginAndNoOther) {
  const std::vector<Job> good = Generated({JobWith(Params(1), "It was", 0, 6)});
  std::vector<Job> bad(5, good[0]);
  bad[0].params.temperature = 9.0f;
  bad[1].params.logprobs = 21;
  bad[2].prompt[1] = 427;
  bad[3].max_tokens = -1;
  bad[4].prompt.assign(64, 1);
  const std::string messages[] = {"temperature = 9 is not allowed: [0, 2]",
                                  "logprobs = 21 is not allowed: [0, 20]",
                                  "prompt = 427 is not allowed: [0, 426]",
                                  "max_tokens = -1 is not allowed: [0, 9223372036854775807]",
                                  "tokens of the prompt = 64 is not allowed: [1, 63]"};
  std::vector<RunnerRequest> begun = {RequestOf(good[0], 0)};
  std::vector<StepRow> rows = {{.slot = 0, .tokens = good[0].prompt}};
  std::vector<int32_t> ids;
  const auto step = [&](std::span<const int32_t> ended, std::span<const RunnerRequest> requests) {
    const StepResults& results = Step({.ended = ended, .begun = requests, .rows = rows});
    ids.push_back(results.rows[0].tokens[0].id);
    rows[0].tokens = {};
    return std::string(results.rows.size() > 1 ? results.rows[1].failure : "");
  };
  step({}, begun);
  const std::vector<int32_t> one = {1};
  for (size_t i = 0; i < bad.size(); ++i) {
    begun = {RequestOf(bad[i], 1)};
    const std::span<const int32_t> prompt = bad[i].prompt;
    rows.resize(1);
    rows.push_back({.slot = 1, .tokens = prompt.first(3), .samples = false});
    EXPECT_EQ(step(i == 0 ? std::span<const int32_t>() : one, begun), messages[i]);
  }
  EXPECT_EQ(ids, good[0].Ids());
}

TEST_F(ModelRunnerTest, SaysAgainWhyARequestCouldNotBeginUntilItsSlotIsFreed) {
  Job job = JobWith(Params(1), "It was");
  job.params.top_p = 2.0f;
  const std::vector<RunnerRequest> begun = {RequestOf(job, 3)};
  Step({.begun = begun});  // it has no row yet
  const std::vector<StepRow> rows = {{.slot = 3, .tokens = job.prompt}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Step({.rows = rows}).rows[0].failure, "top_p = 2 is not allowed: (0, 1]");
  }
  const std::vector<int32_t> ended = {3};
  job.params.top_p = 1.0f;
  EXPECT_EQ(Step({.ended = ended, .begun = begun, .rows = rows}).rows[0].tokens.size(), 1u);
}

TEST_F(ModelRunnerTest, EndsARequestThatThereIsNoMemoryForAndNoOther) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "memory is a sanitizer's";
#endif
  const std::vector<Job> jobs =
      Generated({JobWith(Params(1), "It was", 0, 4), JobWith(Params(2), "return 0;", 0, 4)});
  std::vector<RunnerRequest> begun = {RequestOf(jobs[0], 0)};
  std::vector<StepRow> rows = {{.slot = 0, .tokens = jobs[0].prompt}};
  Step({.begun = begun, .rows = rows});
  begun = {RequestOf(jobs[1], 1)};
  rows = {{.slot = 0}, {.slot = 1, .tokens = jobs[1].prompt}};
  {
    const NoMemory none;
    runner_.Launch({.begun = begun, .rows = rows});
  }
  const StepResults& lacking = runner_.Await();
  EXPECT_EQ(lacking.rows[0].tokens[0].id, jobs[0].tokens[1].id);
  EXPECT_EQ(lacking.rows[1].failure, "no memory for the request");
  const std::vector<int32_t> ended = {1};
  const StepResults& results = Step({.ended = ended, .begun = begun, .rows = rows});
  EXPECT_EQ(results.rows[0].tokens[0].id, jobs[0].tokens[2].id);
  EXPECT_EQ(results.rows[1].tokens[0].id, jobs[1].tokens[0].id);
}

TEST_F(ModelRunnerTest, ARequestWhoseRowHadAStatusGivesNothingMoreAndTouchesNobody) {
  const std::vector<Job> good = Generated({JobWith(Params(1), "It was", 0, 5)});
  Job bad = JobWith(Params(2), "return 0;");
  bad.params.allowed_token_ids = TokenIds{5};
  bad.params.bad_words = {{5}};
  const std::vector<RunnerRequest> begun = {RequestOf(bad, 2), RequestOf(good[0], 0)};
  std::vector<StepRow> rows = {{.slot = 2, .tokens = bad.prompt},
                               {.slot = 0, .tokens = good[0].prompt}};
  std::vector<int32_t> ids;
  // The second step is launched before anybody knows.
  runner_.Launch({.begun = begun, .rows = rows});
  const std::vector<StepRow> next = {{.slot = 2}, {.slot = 0}};
  runner_.Launch({.rows = next});
  const StepResults& first = runner_.Await();
  ASSERT_EQ(first.rows[0].tokens.size(), 1u);
  EXPECT_EQ(first.rows[0].tokens[0].status, RowStatus::kEmptySupport);
  EXPECT_EQ(first.rows[0].tokens[0].id, -1);
  EXPECT_EQ(first.rows[0].failure, "");
  ids.push_back(first.rows[1].tokens[0].id);
  const StepResults& second = runner_.Await();
  EXPECT_TRUE(second.rows[0].tokens.empty());
  EXPECT_EQ(second.rows[0].failure, "its last row has ended with a status");
  ids.push_back(second.rows[1].tokens[0].id);
  const std::vector<int32_t> preempted = {2};
  ids.push_back(Step({.preempted = preempted, .rows = next}).rows[1].tokens[0].id);
  const std::vector<int32_t> ended = {2};
  const std::vector<StepRow> last = {{.slot = 0}};
  ids.push_back(Step({.ended = ended, .rows = last}).rows[0].tokens[0].id);
  ids.push_back(Step({.rows = last}).rows[0].tokens[0].id);
  EXPECT_EQ(ids, good[0].Ids());
}

TEST_F(ModelRunnerTest, FailsARowThatBringsOtherTokensThanTheRequests) {
  const Job job = JobWith(Params(1), "It was");
  const std::vector<RunnerRequest> begun = {RequestOf(job, 0)};
  std::vector<int32_t> other = job.prompt;
  other.back() = 1 << 30;
  const std::vector<StepRow> rows = {{.slot = 0, .tokens = other}};
  const StepResults& results = Step({.begun = begun, .rows = rows});
  EXPECT_EQ(results.rows[0].failure, "its row has other tokens than its prompt and output");
  EXPECT_TRUE(results.rows[0].tokens.empty());
}

TEST_F(ModelRunnerTest, KeepsTheResultsThatAreReadWhileTwoMoreStepsAreComputed) {
  std::vector<Job> jobs = {JobWith(Params(1), "It was", 0, 6)};
  jobs[0].params.logprobs = 2;
  jobs = Generated(jobs);
  const std::vector<RunnerRequest> begun = {RequestOf(jobs[0], 0)};
  const std::vector<StepRow> first = {{.slot = 0, .tokens = jobs[0].prompt}};
  const std::vector<StepRow> next = {{.slot = 0}};
  runner_.Launch({.begun = begun, .rows = first});
  for (size_t t = 0; t < 4; ++t) {
    if (t == 0) runner_.Launch({.rows = next});
    const StepRowResult& row = runner_.Await().rows[0];
    runner_.Launch({.rows = next});
    ASSERT_EQ(row.tokens.size(), 1u);
    EXPECT_EQ(row.tokens[0].id, jobs[0].tokens[t].id);
    EXPECT_EQ(row.logprob_ids[1], jobs[0].logprob_ids[3 * t + 1]);
    EXPECT_EQ(row.logprob_values[2], jobs[0].logprob_values[3 * t + 2]);
  }
}

TEST(ModelRunner, TakesNoMemoryForRequestsThatDecode) {
  for (const HeadChoice head : {HeadChoice::kDense, HeadChoice::kDither4}) {
    ModelRunner runner(Tiny(), {.max_requests = 16, .planes = HeadPlanesFor(head, Tiny(), {})});
    std::vector<Job> jobs;
    for (const SamplingParams& params : AllParams()) {
      jobs.push_back(JobWith(params, "It was", 0, 40));
    }
    std::vector<RunnerRequest> begun;
    std::vector<StepRow> rows, next;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const auto slot = static_cast<int32_t>(i);
      begun.push_back(
          {.slot = slot, .params = &jobs[i].params, .prompt = jobs[i].prompt, .max_tokens = 40});
      rows.push_back({.slot = slot, .tokens = jobs[i].prompt});
      next.push_back({.slot = slot});
    }
    runner.Launch({.begun = begun});
    const int64_t before = AllocationCount();
    runner.Launch({.rows = rows});
    for (int i = 0; i < 30; ++i) {
      runner.Await();
      runner.Launch({.rows = next});
    }
    EXPECT_EQ(AllocationCount() - before, 0) << Name(head);
  }
}

}  // namespace
}  // namespace sluice::test
