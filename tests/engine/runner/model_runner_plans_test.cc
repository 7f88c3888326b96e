// A plan that a runner cannot carry out is refused, and nothing has changed then.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/decoder.hpp"
#include "sluice/model_runner.hpp"
#include "tests/engine/one_stream.h"
#include "tests/engine/runner/tiny_runner.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

TEST_F(ModelRunnerTest, APlanThatDoesNotFitChangesNothing) {
  const std::vector<Job> jobs = Generated({JobWith(Params(1), "It was", 0, 20)});
  const std::vector<int32_t> long_prompt(60, 1);
  const std::vector<RunnerRequest> begun = {RequestOf(jobs[0], 0)};
  const std::vector<StepRow> first = {{.slot = 0, .tokens = jobs[0].prompt}};
  std::vector<int32_t> ids = {Step({.begun = begun, .rows = first}).rows[0].tokens[0].id};

  Job other = JobWith(Params(2), "It was");
  other.prompt = long_prompt;
  const std::vector<int32_t> none, zero = {0}, one = {1}, four = {4};
  const std::vector<StepRow> row = {{.slot = 0}}, twice = {{.slot = 0}, {.slot = 0}};
  const std::vector<StepRow> of_nobody = {{.slot = 1}}, of_no_slot = {{.slot = -1}};
  const std::vector<StepRow> too_long = {{.slot = 0, .tokens = long_prompt, .samples = false}};
  const std::vector<RunnerRequest> taken = {RequestOf(other, 0)};
  const auto refuse = [&](const StepPlan& plan, const std::string& parameter,
                          const std::string& value, const std::string& allowed,
                          ErrorCode code = ErrorCode::kInvalidValue) {
    ExpectError([&] { runner_.Launch(plan); }, parameter, value, allowed, code);
    ids.push_back(Step({.rows = row}).rows[0].tokens[0].id);
  };
  refuse({.ended = one}, "ended.slot", "1, which is free", "the slot of a request");
  refuse({.ended = four}, "ended.slot", "4", "[0, 3]");
  refuse({.preempted = one}, "preempted.slot", "1, which is free", "the slot of a request");
  refuse({.begun = taken}, "begun.slot", "0, which is taken", "a free slot");
  refuse({.rows = of_nobody}, "rows.slot", "1, which is free", "the slot of a request");
  refuse({.rows = of_no_slot}, "rows.slot", "-1", "[0, 3]");
  refuse({.rows = twice}, "rows", "two of slot 0", "one of each slot");
  refuse({.ended = zero, .rows = row}, "rows.slot", "0, which is free", "the slot of a request");
  refuse({.preempted = zero, .rows = row}, "rows.tokens", "none of slot 0",
         "some, where the last step has given none");
  refuse({.ended = zero, .rows = too_long}, "rows.slot", "0, which is free",
         "the slot of a request");
  const std::string cached = std::to_string(jobs[0].prompt.size() + ids.size() - 1 + 60);
  const std::string known = std::to_string(jobs[0].prompt.size() + ids.size());
  refuse({.rows = too_long}, "rows.tokens", cached + " with those in the cache, of slot 0",
         "at most " + known + " of prompt and output");
  const std::vector<RunnerRequest> two = {RequestOf(other, 1), RequestOf(other, 2)};
  const std::vector<StepRow> many = {{.slot = 1, .tokens = long_prompt},
                                     {.slot = 2, .tokens = long_prompt}};
  refuse({.begun = two, .rows = many}, "tokens of all rows", "120", "[0, 64]");
  const std::vector<Job> expected = Generated({JobWith(Params(1), "It was", 0, std::ssize(ids))});
  EXPECT_EQ(ids, expected[0].Ids());
}

TEST(ModelRunner, RefusesAPlanThatTakesMorePagesThanThereAreBeforeAnythingChanges) {
  SamplingParams params;
  params.seed = 4;
  const std::vector<Job> jobs = Generated({JobWith(params, "It was", 0, 3)});
  ModelRunner runner(Tiny(), {.max_requests = 4, .max_step_tokens = 200, .cache_tokens = 64});
  EXPECT_EQ(runner.info().pages, 4);
  const auto request = [&](const Job& job, int32_t slot) {
    return RunnerRequest{
        .slot = slot, .params = &job.params, .prompt = job.prompt, .max_tokens = job.max_tokens};
  };
  Job other = jobs[0];
  other.prompt.assign(33, 1);
  const std::vector<RunnerRequest> first = {request(jobs[0], 0)};
  const std::vector<StepRow> first_row = {{.slot = 0, .tokens = jobs[0].prompt}};
  const std::vector<RunnerRequest> more = {request(other, 1), request(other, 2)};
  const std::vector<StepRow> rows = {
      {.slot = 0}, {.slot = 1, .tokens = other.prompt}, {.slot = 2, .tokens = other.prompt}};
  std::vector<int32_t> ids;
  runner.Launch({.begun = first, .rows = first_row});
  ids.push_back(runner.Await().rows[0].tokens[0].id);
  ExpectError([&] { runner.Launch({.begun = more, .rows = rows}); }, "pages of all requests", "7",
              "at most 4", ErrorCode::kExhausted);
  for (int i = 0; i < 2; ++i) {
    const auto some = i == 0 ? std::span(more).first(1) : std::span(more).first(0);
    runner.Launch({.begun = some, .rows = std::span(rows).first(i == 0 ? 2 : 1)});
    ids.push_back(runner.Await().rows[0].tokens[0].id);
  }
  EXPECT_EQ(ids, jobs[0].Ids());
}

TEST(ModelRunner, HasAsManyPagesAsItSays) {
  SamplingParams params;
  params.seed = 4;
  ModelRunner runner(Tiny(), {.max_requests = 2, .max_step_tokens = 128, .cache_tokens = 128});
  const RunnerInfo& info = runner.info();
  EXPECT_EQ(info.page_tokens, Decoder::kPageTokens);
  EXPECT_EQ(info.pages, 8);
  EXPECT_EQ(info.vocab, 427);
  EXPECT_EQ(info.context, 64);
  EXPECT_EQ(info.max_requests, 2);
  EXPECT_EQ(info.max_step_tokens, 128);
  EXPECT_EQ(info.max_given_tokens, 1);
  EXPECT_EQ(info.max_logprobs, 20);
  Job job = JobWith(params, "It was");
  job.prompt.assign(63, 1);
  std::vector<RunnerRequest> begun;
  std::vector<StepRow> rows;
  for (int32_t slot = 0; slot < 2; ++slot) {
    begun.push_back({.slot = slot, .params = &job.params, .prompt = job.prompt, .max_tokens = 1});
    rows.push_back({.slot = slot, .tokens = job.prompt});
  }
  runner.Launch({.begun = begun, .rows = rows});
  EXPECT_EQ(runner.Await().rows[1].tokens.size(), 1u);
  // A context's worth each, unless that is more than a GiB.
  EXPECT_EQ(ModelRunner(Tiny(), {.max_requests = 3}).info().pages, 3 * 4);
  TinyFiles files({.context = 1 << 20});
  const Checkpoint long_checkpoint = Checkpoint::FromFiles(files.view());
  const auto bytes = [&](int64_t pages) {
    return Decoder::Bytes(long_checkpoint.model(), {.cache_tokens = 16 * pages});
  };
  const int64_t pages = ModelRunner(long_checkpoint, {.max_requests = 8}).info().pages;
  const size_t without_cache = 2 * bytes(1 << 16) - bytes(1 << 17);
  EXPECT_LE(bytes(pages), without_cache + (size_t{1} << 30));
  EXPECT_GT(bytes(pages + 1), without_cache + (size_t{1} << 30));
}

TEST_F(ModelRunnerTest, AThirdStepOnItsWayIsRefused) {
  runner_.Launch({});
  runner_.Launch({});
  ExpectError([&] { runner_.Launch({}); }, "steps", "a third one on its way",
              "at most two until the oldest is awaited");
  runner_.Await();
  runner_.Await();
  ExpectError([&] { runner_.Await(); }, "steps", "none on its way", "one that was launched");
}

TEST(ModelRunner, TakesNoPlanBehindAStepThatThrew) {
  bool throws = false;
  const ParallelFor parallel{
      .context = &throws,
      .run = [](void* context, int64_t count, ParallelFor::Task task, void* state) {
        if (*static_cast<bool*>(context)) throw std::runtime_error("no threads");
        for (int64_t i = 0; i < count; ++i) task(state, i, 0);
      }};
  ModelRunner runner(Tiny(), {.max_requests = 1, .parallel = parallel});
  OneStream stream(runner);
  stream.Launch();
  throws = true;
  EXPECT_THROW(stream.Launch(), std::runtime_error);
  throws = false;
  ExpectError([&] { stream.Launch(); }, "runner", "one that has thrown in a step",
              "one that has not");
  EXPECT_EQ(stream.Read().rows[0].tokens.size(), 1u);  // the step in front of it
}

TEST(ModelRunner, RefusesOptionsThatDoNotFit) {
  const auto refuse = [&](const ModelRunnerOptions& options, const std::string& parameter,
                          const std::string& value, const std::string& allowed) {
    ExpectError([&] { ModelRunner(Tiny(), options); }, parameter, value, allowed);
  };
  refuse({.max_requests = 0}, "max_requests", "0", "[1, 1048576]");
  refuse({.max_step_tokens = 0}, "max_step_tokens", "0", "[1, 1048576]");
  refuse({.cache_tokens = -1}, "cache_tokens", "-1", "[0, 4294967296]");
  refuse({.max_logprobs = -2}, "max_logprobs", "-2", "[-1, 8388608]");
}

}  // namespace
}  // namespace sluice::test
