// A runner without a model: tokens by script, at a rate. Benches and fault tests of everything that
// follows the model run on it.
//
// The tokens of a request depend on its prompt alone: `tokens` of the options, or with echo the
// prompt's own, over and over. A mask allows a stop token, which is given then; or the next token
// of the script, every second time; or the allowed token that comes next in the vocabulary.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sluice/step_runner.hpp"

namespace sluice {

struct ScriptOptions {
  int64_t vocab = 0;
  std::vector<int32_t> tokens = {};  // not empty, unless echo
  bool echo = false;
  bool from_prompt = true;  // `tokens` begin at place prompt[0] mod size; false: at the first
  int64_t context = 1 << 20;
  int32_t max_requests = 256;
  int64_t max_step_tokens = 8192;
  int64_t page_tokens = 16;
  int64_t pages = 1 << 20;
  int64_t burst = 1;  // tokens that each step gives each request
  int32_t max_logprobs = 20;
  std::chrono::nanoseconds step_time = {};   // that a step takes at least
  std::chrono::nanoseconds token_time = {};  // and for each input
  // Called on the launching thread before each step, with its number: a test stalls, throws or
  // kills here.
  std::function<void(int64_t step)> before_step = {};
};

// The log-probabilities of a request that has some, of output and prompt: a function of the token,
// made up. The lists have the tokens that follow it in the vocabulary, with theirs.
float ScriptLogprob(int32_t id);
int32_t ScriptRank(int32_t id);

class ScriptRunner final : public StepRunner {
 public:
  explicit ScriptRunner(ScriptOptions options);
  ~ScriptRunner() override;

  const RunnerInfo& info() const override;
  // Does not wait: a step is done when its time is over, counted from the end of the one before it.
  void Launch(const StepPlan& plan) override;
  const StepResults& Await() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
