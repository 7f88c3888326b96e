// Tokens by script alone, whatever the course of the steps, and steps that take their time.
#include "sluice/script_runner.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/one_stream.h"
#include "tests/engine/random_schedule.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Job JobWith(std::vector<int32_t> prompt, int64_t max_tokens) {
  return {.prompt = std::move(prompt), .max_tokens = max_tokens};
}

std::vector<int32_t> RunOne(const ScriptOptions& options, const std::vector<int32_t>& prompt,
                            int64_t max_tokens) {
  ScriptRunner runner(options);
  std::vector<Job> jobs = {JobWith(prompt, max_tokens)};
  RandomSchedule(runner, jobs, 0, 1).Run();
  return jobs[0].Ids();
}

TEST(ScriptRunner, GivesItsTokensFromThePlaceOfThePromptsFirstOne) {
  const ScriptOptions options{.vocab = 100, .tokens = {10, 20, 30, 40, 50}};
  EXPECT_EQ(RunOne(options, {0}, 7), (std::vector<int32_t>{10, 20, 30, 40, 50, 10, 20}));
  EXPECT_EQ(RunOne(options, {13, 99}, 3), (std::vector<int32_t>{40, 50, 10}));
}

TEST(ScriptRunner, GivesItsTokensFromTheFirstOneWhateverThePrompt) {
  const ScriptOptions options{.vocab = 100, .tokens = {10, 20, 30}, .from_prompt = false};
  for (const int32_t first : {0, 13, 99}) {
    EXPECT_EQ(RunOne(options, {first}, 4), (std::vector<int32_t>{10, 20, 30, 10})) << first;
  }
}

TEST(ScriptRunner, EchoesThePromptOverAndOver) {
  EXPECT_EQ(RunOne({.vocab = 100, .echo = true}, {7, 8, 9}, 7),
            (std::vector<int32_t>{7, 8, 9, 7, 8, 9, 7}));
}

TEST(ScriptRunner, GivesTheSameTokensHoweverStepsAreMade) {
  for (const int64_t burst : {1, 4}) {
    for (const int steps_in_flight : {0, 1}) {
      std::vector<int32_t> script;
      for (int32_t id = 0; id < 97; ++id) script.push_back(id * 31 % 1000);
      ScriptRunner runner({.vocab = 1000,
                           .tokens = script,
                           .context = 200,
                           .max_requests = 7,
                           .max_step_tokens = 40,
                           .page_tokens = 8,
                           .pages = 30,
                           .burst = burst});
      std::vector<Job> jobs;
      for (int32_t i = 0; i < 40; ++i) {
        jobs.push_back(JobWith(std::vector<int32_t>(static_cast<size_t>(1 + i * 7 % 60), i * 11),
                               1 + i * 3 % 40));
        jobs.back().stops_unseen = i % 2 == 0;
        if (i % 3 == 0) jobs.back().params.logprobs = i % 5;
      }
      RandomSchedule schedule(runner, jobs, steps_in_flight, 3);
      schedule.Run();
      for (const Job& job : jobs) {
        ASSERT_EQ(std::ssize(job.tokens), job.max_tokens) << job.failure;
        const std::optional<int32_t>& listed = job.params.logprobs;
        ASSERT_EQ(job.logprob_width, listed.has_value() ? 1 + *listed : 0);
        for (size_t t = 0; t < job.tokens.size(); ++t) {
          const TokenResult& token = job.tokens[t];
          EXPECT_EQ(token.id, script[(static_cast<size_t>(job.prompt[0]) + t) % script.size()]);
          EXPECT_EQ(token.rank, listed.has_value() ? ScriptRank(token.id) : 0);
          if (!listed.has_value()) continue;
          EXPECT_EQ(token.logprob, ScriptLogprob(token.id));
          for (int32_t k = 0; k <= *listed; ++k) {
            const size_t at = t * static_cast<size_t>(1 + *listed) + static_cast<size_t>(k);
            EXPECT_EQ(job.logprob_ids[at], (token.id + k) % 1000);
            EXPECT_EQ(job.logprob_values[at], ScriptLogprob(job.logprob_ids[at]));
          }
        }
      }
      EXPECT_GT(schedule.preemptions(), 5);
    }
  }
}

TEST(ScriptRunner, AStepIsDoneWhenItsTimeIsOverBehindTheOneBeforeIt) {
  ScriptRunner runner(
      {.vocab = 10, .tokens = {1}, .step_time = milliseconds(10), .token_time = milliseconds(5)});
  OneStream stream(runner);
  const auto begin = steady_clock::now();
  stream.Launch();  // 3 inputs: 25 ms
  stream.Launch();  // 1 input: 15 ms behind it
  EXPECT_EQ(stream.Read().times.forward_ns, 25'000'000);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(25));
  EXPECT_EQ(stream.Read().times.forward_ns, 15'000'000);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(40));
}

TEST(ScriptRunner, TimePassesWhileTheCallerDoesSomethingElse) {
  constexpr milliseconds kStep{200};
  ScriptRunner runner({.vocab = 10, .tokens = {1}, .step_time = kStep});
  OneStream stream(runner);
  // A runner whose time passes in Launch or in Read alone takes a step's time there in every round;
  // a machine that does other things does so in some.
  bool is_launched_at_once = false;
  bool is_read_at_once = false;
  for (int round = 0; round < 50 && !(is_launched_at_once && is_read_at_once); ++round) {
    const auto begin = steady_clock::now();
    stream.Launch();
    is_launched_at_once |= steady_clock::now() - begin < kStep;
    std::this_thread::sleep_for(kStep);
    const auto slept = steady_clock::now();
    stream.Read();
    is_read_at_once |= steady_clock::now() - slept < kStep;
  }
  EXPECT_TRUE(is_launched_at_once);
  EXPECT_TRUE(is_read_at_once);
}

TEST(ScriptRunner, CallsTheHookInFrontOfEachStepAndLetsItThrow) {
  std::vector<int64_t> steps;
  ScriptRunner runner({.vocab = 10, .tokens = {1, 2, 3}, .before_step = [&](int64_t step) {
                         steps.push_back(step);
                         if (steps.size() == 3) throw std::runtime_error("stalled");
                       }});
  OneStream stream(runner);
  stream.Launch();
  EXPECT_EQ(stream.Await(), 1);
  stream.Launch();
  EXPECT_EQ(stream.Await(), 2);
  EXPECT_THROW(stream.Launch(), std::runtime_error);
  stream.Launch();  // nothing had happened
  EXPECT_EQ(stream.Await(), 3);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 2}));
}

TEST(ScriptRunner, FailsARequestThatItHasNoTokensFor) {
  ScriptRunner runner({.vocab = 10, .tokens = {1}, .max_requests = 4, .max_logprobs = 3});
  const SamplingParams params;
  SamplingParams many;
  many.logprobs = 4;
  const std::vector<int32_t> prompt = {3}, unknown = {10};
  const std::vector<RunnerRequest> begun = {{.slot = 0, .params = &params, .prompt = unknown},
                                            {.slot = 1, .params = &params, .prompt = prompt},
                                            {.slot = 2, .params = &many, .prompt = prompt},
                                            {.slot = 3, .prompt = prompt}};
  const std::vector<StepRow> rows = {{.slot = 0, .tokens = unknown},
                                     {.slot = 1, .tokens = prompt},
                                     {.slot = 2, .tokens = prompt},
                                     {.slot = 3, .tokens = prompt}};
  runner.Launch({.begun = begun, .rows = rows});
  const StepResults& results = runner.Await();
  EXPECT_EQ(results.rows[0].failure, "a token of the prompt is not in the vocabulary");
  EXPECT_EQ(results.rows[0].failure_code, ErrorCode::kInvalidValue);
  EXPECT_EQ(results.rows[1].failure, "");
  EXPECT_EQ(results.rows[1].tokens.size(), 1u);
  EXPECT_EQ(results.rows[2].failure, "more logprobs than max_logprobs");
  EXPECT_EQ(results.rows[3].failure, "no parameters");
}

TEST(ScriptRunner, RefusesPlansThatDoNotFit) {
  ScriptRunner runner({.vocab = 10,
                       .tokens = {1},
                       .context = 8,
                       .max_requests = 2,
                       .max_step_tokens = 20,
                       .page_tokens = 4,
                       .pages = 3});
  const SamplingParams params;
  const std::vector<int32_t> prompt(9, 1), short_prompt(6, 1);
  std::vector<RunnerRequest> begun = {{.slot = 0, .params = &params, .prompt = prompt}};
  std::vector<StepRow> rows = {{.slot = 0, .tokens = prompt}};
  ExpectError([&] { runner.Launch({.begun = begun, .rows = rows}); }, "rows.tokens",
              "9 with those in the cache, of slot 0", "at most the context, 8");
  rows[0].tokens = std::span(prompt).first(7);
  ExpectError([&] { runner.Launch({.begun = begun, .rows = rows}); }, "rows.tokens",
              "7 with those in the cache, of slot 0", "all 9 of prompt and output");
  begun = {{.slot = 0, .params = &params, .prompt = short_prompt},
           {.slot = 1, .params = &params, .prompt = short_prompt}};
  rows = {{.slot = 0, .tokens = short_prompt}, {.slot = 1, .tokens = short_prompt}};
  ExpectError([&] { runner.Launch({.begun = begun, .rows = rows}); }, "pages of all requests", "4",
              "at most 3", ErrorCode::kExhausted);
  runner.Launch({});
  runner.Launch({});
  ExpectError([&] { runner.Launch({}); }, "steps", "a third one on its way",
              "at most two until the oldest is awaited");
}

TEST(ScriptRunner, RefusesPrefixesThatDoNotFit) {
  ScriptRunner runner({.vocab = 10,
                       .tokens = {1},
                       .context = 40,
                       .max_requests = 2,
                       .page_tokens = 4,
                       .max_prefixes = 2});
  const SamplingParams params;
  const std::vector<int32_t> prompt(9, 1);
  const RunnerRequest begun[] = {{.slot = 0, .params = &params, .prompt = prompt},
                                 {.slot = 1, .params = &params, .prompt = prompt}};
  const StepRow rows[] = {{.slot = 0, .tokens = prompt}};
  runner.Launch({.begun = begun, .rows = rows});
  runner.Await();
  const auto refused = [&](const StepPlan& plan, const char* parameter, const char* value,
                           const char* allowed) {
    ExpectError([&] { runner.Launch(plan); }, parameter, value, allowed);
  };
  const int32_t ended[] = {0};
  const auto keep = [&](const KeptPrefix& kept) { return StepPlan{.kept = {&kept, 1}}; };
  refused(keep({.slot = 2, .prefix = 0, .tokens = 8}), "kept.slot", "2", "[0, 1]");
  refused(keep({.slot = 0, .prefix = 2, .tokens = 8}), "kept.prefix", "2", "[0, 1]");
  refused(keep({.slot = 0, .prefix = 0, .tokens = 12}), "kept.tokens", "12", "[4, 9]");
  refused(keep({.slot = 0, .prefix = 0, .tokens = 6}), "kept.tokens", "6",
          "whole pages of 4 tokens");
  const KeptPrefix kept[] = {{.slot = 0, .prefix = 1, .tokens = 8}};
  runner.Launch({.kept = kept, .ended = ended});
  runner.Await();
  refused(keep({.slot = 1, .prefix = 1, .tokens = 0}), "kept.prefix", "1, which is taken",
          "a free place");
  const auto share = [&](const SharedPrefix& shared) { return StepPlan{.shared = {&shared, 1}}; };
  refused(share({.slot = 0, .prefix = 1, .tokens = 4}), "shared.slot", "0, which is free",
          "the slot of a request");
  refused(share({.slot = 1, .prefix = 0, .tokens = 4}), "shared.tokens", "4", "0");
  refused(share({.slot = 1, .prefix = 1, .tokens = 0}), "shared.tokens", "0", "[1, 8]");
  const TrimmedPrefix longer[] = {{.prefix = 1, .tokens = 12}};
  refused({.trimmed = longer}, "trimmed.tokens", "12", "[0, 8]");
  // Shared first, then trimmed: the request has its pages all the same.
  const SharedPrefix shared[] = {{.slot = 1, .prefix = 1, .tokens = 8}};
  const TrimmedPrefix dropped[] = {{.prefix = 1, .tokens = 0}};
  const StepRow last[] = {{.slot = 1, .tokens = std::span(prompt).last(1)}};
  runner.Launch({.shared = shared, .trimmed = dropped, .rows = last});
  EXPECT_EQ(runner.Await().rows[0].tokens.size(), 1u);
  refused({.shared = shared}, "shared.tokens", "8", "0");
}

TEST(ScriptRunner, ABurstIsOneInputOfTheStepThatReadsIt) {
  ScriptRunner runner({.vocab = 10, .tokens = {1}, .max_step_tokens = 3, .burst = 8});
  OneStream stream(runner);
  stream.Launch();
  stream.Launch();
  EXPECT_EQ(stream.Read().rows[0].tokens.size(), 8u);
  EXPECT_EQ(stream.Read().rows[0].tokens.size(), 8u);
}

TEST(ScriptRunner, TakesNoMemoryForRequestsThatDecode) {
  ScriptRunner runner({.vocab = 10, .tokens = {1, 2, 3}, .burst = 3});
  SamplingParams params;
  params.logprobs = 5;
  OneStream stream(runner, params);
  stream.Launch();
  const int64_t before = AllocationCount();
  for (int i = 0; i < 50; ++i) {
    stream.Launch();
    EXPECT_EQ(stream.Read().rows[0].tokens.size(), 3u);
  }
  EXPECT_EQ(AllocationCount() - before, 0);
}

TEST(ScriptRunner, RefusesOptionsThatDoNotFit) {
  const auto refuse = [](ScriptOptions options, const std::string& parameter,
                         const std::string& value, const std::string& allowed) {
    ExpectError([&] { ScriptRunner runner(options); }, parameter, value, allowed);
  };
  refuse({.tokens = {1}}, "vocab", "0", "[1, 8388608]");
  refuse({.vocab = 10}, "tokens", "", "at least one, unless echo is on");
  refuse({.vocab = 10, .tokens = {10}}, "tokens", "10", "[0, 9]");
  refuse({.vocab = 10, .tokens = {1}, .burst = 0}, "burst", "0", "[1, 65536]");
  refuse({.vocab = 10, .tokens = {1}, .max_requests = 0}, "max_requests", "0", "[1, 1048576]");
  refuse({.vocab = 10, .tokens = {1}, .step_time = milliseconds(-1)}, "step_time", "-1000000",
         "[0, 9223372036854775807]");
}

}  // namespace
}  // namespace sluice::test
