// Runs the steps of another runner on a thread of its own, so that the Engine plans and reads while
// a model on the CPU computes: what a device is by nature.
//
// The runner has one step on its way at a time; another one waits here. Results are copied.
#pragma once

#include <memory>

#include "sluice/step_runner.hpp"

namespace sluice {

class RunnerThread final : public StepRunner {
 public:
  // Starts one thread. `runner` must outlive it; no other thread may call it meanwhile.
  explicit RunnerThread(StepRunner& runner);
  ~RunnerThread() override;  // when the steps on their way are done; their plans must be there

  const RunnerInfo& info() const override;
  void Launch(const StepPlan& plan) override;  // does not wait
  // Throws what the step threw, and so does every later step: the runner is called no more.
  const StepResults& Await() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
