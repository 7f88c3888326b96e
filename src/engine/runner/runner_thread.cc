// The thread awaits each step itself and copies the results, a few bytes a row: the runner's own
// are gone when its next step starts, and those that the caller reads must not be. So the runner
// has one step on its way at a time; the other waits here.
#include "sluice/runner_thread.hpp"

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>

#include "engine/step_store.h"

namespace sluice {

class RunnerThread::Impl {
 public:
  explicit Impl(StepRunner& runner)
      : runner_(runner),
        info_(runner.info()),
        ring_(info_),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  const RunnerInfo& info() const { return info_; }

  void Launch(const StepPlan& plan) {
    {
      const std::lock_guard lock(mutex_);
      ring_.CheckLaunch();
      PlanOf(ring_.Launch()) = plan;
    }
    launched_.notify_one();
  }

  const StepResults& Await() {
    std::unique_lock lock(mutex_);
    ring_.CheckAwait();
    const int64_t step = ring_.Await();
    done_.wait(lock, [&] { return steps_done_ > step; });
    if (error_ != nullptr && step >= error_step_) std::rethrow_exception(error_);
    return ring_.At(step).results();
  }

 private:
  StepPlan& PlanOf(int64_t step) { return plans_[static_cast<size_t>(step) % plans_.size()]; }

  void Run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto has_step = [&] { return ring_.launched() > steps_done_; };
    // True also when it shall stop while steps are on their way: those are computed first.
    while (launched_.wait(lock, stop, has_step)) {
      const int64_t step = steps_done_;
      const bool is_alive = error_ == nullptr;
      lock.unlock();
      std::exception_ptr error = is_alive ? Compute(step) : nullptr;
      lock.lock();
      if (error != nullptr) {
        error_ = std::move(error);
        error_step_ = step;
      }
      ++steps_done_;
      done_.notify_one();
    }
  }

  // No other thread touches the plan and the results of a step on its way.
  std::exception_ptr Compute(int64_t step) {
    try {
      runner_.Launch(PlanOf(step));
      const StepResults& results = runner_.Await();
      engine::StepStore& store = ring_.At(step);
      store.Clear();
      for (const StepRowResult& row : results.rows) store.Add(row);
      store.Finish(results.times, results.drafts);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  StepRunner& runner_;
  const RunnerInfo info_;
  engine::StepRing ring_;
  std::array<StepPlan, 2> plans_;
  std::mutex mutex_;
  std::condition_variable_any launched_;
  std::condition_variable done_;
  int64_t steps_done_ = 0;
  // The exception of the runner, and its step. It is not called again.
  std::exception_ptr error_;
  int64_t error_step_ = 0;
  std::jthread thread_;  // the last one: it uses all of the above
};

RunnerThread::RunnerThread(StepRunner& runner) : impl_(std::make_unique<Impl>(runner)) {}
RunnerThread::~RunnerThread() = default;

const RunnerInfo& RunnerThread::info() const { return impl_->info(); }
void RunnerThread::Launch(const StepPlan& plan) { impl_->Launch(plan); }
const StepResults& RunnerThread::Await() { return impl_->Await(); }

}  // namespace sluice
