// A runner of a tiny model, what is asked of it, and what a Generator makes of the same.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sluice/generator.hpp"
#include "sluice/model_runner.hpp"
#include "tests/engine/random_schedule.h"
#include "tests/engine/tiny_checkpoint.h"

namespace sluice::test {

inline const Checkpoint& Tiny() {
  static TinyFiles files;
  static const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  return checkpoint;
}

// Parameters that take every way through the head stage.
inline std::vector<SamplingParams> AllParams() {
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

inline Job JobWith(const SamplingParams& params, const std::string& prompt, uint32_t choice = 0,
                   int64_t max_tokens = 8) {
  return {.params = params,
          .prompt = Tiny().tokenizer().Encode(prompt),
          .choice = choice,
          .max_tokens = max_tokens};
}

// What a Generator gives, by the definition.
inline void Generate(Job& job) {
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

inline std::vector<Job> Generated(std::vector<Job> jobs) {
  for (Job& job : jobs) {
    Generate(job);
    job.max_tokens = std::ssize(job.tokens);  // a stop token ends a Generator's choice
  }
  return jobs;
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

}  // namespace sluice::test
