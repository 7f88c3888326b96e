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
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

const Checkpoint& Tiny() {
  static TinyFiles files;
  static const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  return checkpoint;
}

// Parameters that take every way through the head stage.
std::vector<SamplingParams> AllParams() {
  std::vector<SamplingParams> all(11);
  all[0].temperature = 0.0f;
  all[1].temperature = 0.8f;
  all[2].top_k = 20;
  all[2].top_p = 0.9f;
  all[3].min_p = 0.05f;
  all[4].top_p = 0.8f;  // needs the mass of all tokens
  all[5].top_k = 10;
  all[5].draw_method = DrawMethod::kCdf;
  all[6].top_k = 10;
  all[6].repetition_penalty = 1.3f;
  all[7].top_k = 30;  // adjusted for five tokens, then not
  all[7].min_tokens = 5;
  all[7].stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
  all[8].logprobs = 3;
  all[9].logprobs = 0;
  all[10].logprobs = 20;
  all[10].logprob_mode = LogprobMode::kProcessedLogprobs;
  all[10].top_k = 10;
  for (size_t i = 0; i < all.size(); ++i) all[i].seed = 100 + i;
  return all;
}

Job JobWith(const SamplingParams& params, const std::string& prompt, uint32_t choice = 0,
            int64_t max_tokens = 8) {
  return {.params = params,
          .prompt = Tiny().tokenizer().Encode(prompt),
          .choice = choice,
          .max_tokens = max_tokens};
}

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

// What a Generator gives, by the definition.
void Generate(Job& job) {
  Generator generator(Tiny(),
                      {.params = job.params,
                       .prompt = job.prompt,
                       .choices = static_cast<int32_t>(job.choice) + 1,
                       .max_tokens = job.max_tokens,
                       .ignores_end = true},
                      {.backend = Backend::kRef});
  for (auto steps = generator.Step(); !steps.empty(); steps = generator.Step()) {
    const ChoiceStep& last = steps.back();
    if (last.choice != static_cast<int32_t>(job.choice)) continue;
    job.tokens.push_back(last.token);
    const LogprobRows lists = generator.logprobs();
    job.logprob_width = lists.width;
    const auto width = static_cast<size_t>(lists.width);
    const auto ids = lists.ids.last(width);
    const auto values = lists.values.last(width);
    job.logprob_ids.insert(job.logprob_ids.end(), ids.begin(), ids.end());
    job.logprob_values.insert(job.logprob_values.end(), values.begin(), values.end());
  }
}

std::vector<Job> Generated(std::vector<Job> jobs) {
  for (Job& job : jobs) {
    Generate(job);
    job.max_tokens = std::ssize(job.tokens);  // a stop token ends a Generator's choice
  }
  return jobs;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void ExpectSame(const Job& job, const Job& expected, const std::string& where) {
  EXPECT_EQ(job.failure, "") << where;
  EXPECT_EQ(job.Ids(), expected.Ids()) << where;
  ASSERT_EQ(job.tokens.size(), expected.tokens.size()) << where;
  for (size_t t = 0; t < job.tokens.size(); ++t) {
    EXPECT_EQ(job.tokens[t].status, expected.tokens[t].status) << where;
    EXPECT_EQ(job.tokens[t].rank, expected.tokens[t].rank) << where;
    EXPECT_EQ(job.tokens[t].cut, expected.tokens[t].cut) << where;
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
        ExpectSame(jobs[i], expected[i], where);
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
  for (size_t i = 0; i < jobs.size(); ++i) ExpectSame(jobs[i], expected[i], std::to_string(i));
}

// A runner, and one row a request and step.
class ModelRunnerTest : public ::testing::Test {
 protected:
  explicit ModelRunnerTest(const ModelRunnerOptions& options = {.max_requests = 4,
                                                                .max_step_tokens = 64,
                                                                .cache_tokens = 256})
      : runner_(Tiny(), options) {}

  static SamplingParams Params(uint64_t seed) {
    SamplingParams params;
    params.seed = seed;
    return params;
  }
  static RunnerRequest RequestOf(const Job& job, int32_t slot) {
    return {.slot = slot,
            .params = &job.params,
            .prompt = job.prompt,
            .choice = job.choice,
            .max_tokens = job.max_tokens};
  }
  const StepResults& Step(const StepPlan& plan) {
    runner_.Launch(plan);
    return runner_.Await();
  }

  ModelRunner runner_;
};

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
