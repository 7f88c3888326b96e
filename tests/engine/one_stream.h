// One request on a StepRunner: its prompt in the first step, a row without tokens in each other.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/step_runner.hpp"

namespace sluice::test {

class OneStream {
 public:
  explicit OneStream(StepRunner& runner, SamplingParams params = {})
      : runner_(runner), params_(std::move(params)) {}
  // A step on its way reads its plan.
  ~OneStream() {
    while (on_their_way_ > 0) Read();
  }
  OneStream(const OneStream&) = delete;
  OneStream& operator=(const OneStream&) = delete;

  void Launch() {
    runner_.Launch(has_begun_ ? next() : first());
    has_begun_ = true;
    ++on_their_way_;
  }
  const StepResults& Read() {
    --on_their_way_;
    return runner_.Await();
  }
  int32_t Await() { return Read().rows[0].tokens[0].id; }

  StepPlan first() const { return {.begun = begun_, .rows = first_}; }
  StepPlan next() const { return {.rows = next_}; }

 private:
  StepRunner& runner_;
  const SamplingParams params_;
  const std::vector<int32_t> prompt_ = {0, 6, 7};
  const std::vector<RunnerRequest> begun_ = {
      {.slot = 0, .params = &params_, .prompt = prompt_, .max_tokens = 1000}};
  const std::vector<StepRow> first_ = {{.slot = 0, .tokens = prompt_}};
  const std::vector<StepRow> next_ = {{.slot = 0}};
  bool has_begun_ = false;
  int on_their_way_ = 0;
};

}  // namespace sluice::test
