// A runner on a thread: the same results in the same order, steps that run while the caller goes
// on, and exceptions where the step is awaited.
#include "sluice/runner_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/script_runner.hpp"
#include "tests/engine/one_stream.h"
#include "tests/engine/random_schedule.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

ScriptOptions Digits() { return {.vocab = 10, .tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}; }

TEST(RunnerThread, GivesTheRunnersResultsInTheirOrder) {
  ScriptRunner script(Digits());
  RunnerThread runner(script);
  EXPECT_EQ(runner.info().vocab, 10);
  EXPECT_EQ(runner.info().max_requests, script.info().max_requests);
  OneStream stream(runner);
  stream.Launch();
  for (int32_t i = 0; i < 200; ++i) {
    stream.Launch();
    EXPECT_EQ(stream.Await(), i % 10);
  }
}

TEST(RunnerThread, GivesTheSameAsTheRunnerItself) {
  for (const int steps_in_flight : {0, 1}) {
    const auto make_jobs = [] {
      std::vector<Job> jobs;
      for (int32_t i = 0; i < 30; ++i) {
        jobs.push_back({.prompt = std::vector<int32_t>(static_cast<size_t>(1 + i % 9), i % 10),
                        .max_tokens = 1 + i % 17});
        if (i % 2 == 0) jobs.back().params.logprobs = i % 5;
        if (i % 7 == 0) jobs.back().prompt[0] = 10;  // which fails
      }
      return jobs;
    };
    ScriptOptions options = Digits();
    options.max_requests = 5;
    options.burst = 2;
    ScriptRunner alone(options), script(options);
    std::vector<Job> expected = make_jobs(), jobs = make_jobs();
    RandomSchedule(alone, expected, steps_in_flight, 9).Run();
    RunnerThread runner(script);
    RandomSchedule(runner, jobs, steps_in_flight, 9).Run();
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(jobs[i].Ids(), expected[i].Ids());
      EXPECT_EQ(jobs[i].logprob_ids, expected[i].logprob_ids);
      EXPECT_EQ(jobs[i].logprob_values, expected[i].logprob_values);
      EXPECT_EQ(jobs[i].failure, expected[i].failure);
      EXPECT_EQ(jobs[i].failure.empty(), i % 7 != 0);
    }
  }
}

TEST(RunnerThread, LaunchDoesNotWaitAndAThirdStepIsRefused) {
  std::latch may_run(1);
  ScriptOptions options = Digits();
  options.before_step = [&](int64_t) { may_run.wait(); };
  ScriptRunner script(options);
  RunnerThread runner(script);
  OneStream stream(runner);
  stream.Launch();
  stream.Launch();
  ExpectError([&] { runner.Launch({}); }, "steps", "a third one on its way",
              "at most two until the oldest is awaited");
  may_run.count_down();
  EXPECT_EQ(stream.Await(), 0);
  EXPECT_EQ(stream.Await(), 1);
  ExpectError([&] { runner.Await(); }, "steps", "none on its way", "one that was launched");
}

// Each Await overwrites what the one before it gave, as the interface allows.
class OneBufferRunner final : public StepRunner {
 public:
  const RunnerInfo& info() const override { return info_; }
  void Launch(const StepPlan&) override {}
  const StepResults& Await() override {
    token_.id = awaited;
    id_ = awaited;
    value_ = static_cast<float>(awaited);
    failure_ = std::to_string(awaited);
    row_.failure = failure_;
    ++awaited;
    awaited.notify_one();
    return results_;
  }

  std::atomic<int32_t> awaited = 0;

 private:
  RunnerInfo info_ = {.vocab = 1000, .max_requests = 1, .max_logprobs = 0};
  TokenResult token_;
  int32_t id_ = 0;
  float value_ = 0;
  std::string failure_;
  StepRowResult row_ = {.tokens = {&token_, 1},
                        .logprob_width = 1,
                        .logprob_ids = {&id_, 1},
                        .logprob_values = {&value_, 1}};
  StepResults results_ = {.rows = {&row_, 1}};
};

TEST(RunnerThread, KeepsTheResultsThatAreReadWhileTwoMoreStepsAreComputed) {
  OneBufferRunner one_buffer;
  RunnerThread runner(one_buffer);
  runner.Launch({});
  runner.Launch({});
  for (int32_t step = 0; step < 50; ++step) {
    const StepRowResult& row = runner.Await().rows[0];
    runner.Launch({});
    for (int32_t now = one_buffer.awaited; now < step + 3; now = one_buffer.awaited) {
      one_buffer.awaited.wait(now);
    }
    ASSERT_EQ(row.tokens.size(), 1u);
    EXPECT_EQ(row.tokens[0].id, step);
    EXPECT_EQ(row.logprob_width, 1);
    EXPECT_EQ(row.logprob_ids[0], step);
    EXPECT_EQ(row.logprob_values[0], static_cast<float>(step));
    EXPECT_EQ(row.failure, std::to_string(step));
  }
}

TEST(RunnerThread, ThrowsWhatAStepThrewWhereItIsAwaited) {
  std::atomic<int> calls = 0;
  ScriptOptions options = Digits();
  options.before_step = [&](int64_t step) {
    ++calls;
    if (step == 1) throw std::runtime_error("the device is gone");
  };
  ScriptRunner script(options);
  RunnerThread runner(script);
  OneStream stream(runner);
  stream.Launch();
  stream.Launch();
  EXPECT_EQ(stream.Await(), 0);
  stream.Launch();
  // It is the end of the runner: nobody calls it again, and the steps behind end alike.
  for (int i = 0; i < 3; ++i) {
    if (i > 0) stream.Launch();
    try {
      stream.Read();
      ADD_FAILURE() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the device is gone");
    }
  }
  EXPECT_THROW(stream.Read(), std::runtime_error);
  EXPECT_EQ(calls, 2);
}

TEST(RunnerThread, IsGoneOnlyBehindTheStepsOnTheirWay) {
  int steps = 0;
  ScriptOptions options = Digits();
  options.before_step = [&](int64_t) { ++steps; };
  ScriptRunner script(options);
  const OneStream stream(script);
  const std::vector<int32_t> ended = {0};
  for (int i = 0; i < 20; ++i) {
    RunnerThread runner(script);
    StepPlan first = stream.first();
    if (i > 0) first.ended = ended;
    runner.Launch(first);
    runner.Launch(stream.next());
  }
  EXPECT_EQ(steps, 40);
}

TEST(RunnerThread, TakesNoMemoryForRequestsThatDecode) {
  ScriptRunner script(Digits());
  RunnerThread runner(script);
  OneStream stream(runner);
  stream.Launch();
  stream.Launch();
  stream.Await();  // the request has begun
  const int64_t before = AllocationCount();
  for (int i = 0; i < 50; ++i) {
    stream.Launch();
    stream.Await();
  }
  EXPECT_EQ(AllocationCount() - before, 0);
}

}  // namespace
}  // namespace sluice::test
