// A ParallelFor for commands, bindings and benches: threads that wait for work, the caller among
// them as worker 0. The library itself never creates one.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "sluice/execution.hpp"

namespace sluice {

// Tasks may not throw. While the pool serves a call, another one (of another thread, or of a task)
// runs on its own thread alone, and so does every call in a forked process, which has none of the
// threads.
class ThreadPool {
 public:
  explicit ThreadPool(int workers) : process_(getpid()) {
    try {
      for (int worker = 1; worker < workers; ++worker) {
        threads_.emplace_back([this, worker] { Wait(worker); });
      }
    } catch (...) {  // no destructor runs, and a joinable thread would end the process
      Join();
      throw;
    }
  }
  ~ThreadPool() {
    if (getpid() != process_) {
      for (std::thread& thread : threads_) thread.detach();
      return;
    }
    Join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }

  ParallelFor parallel() {
    if (threads_.empty()) return {};
    return {workers(), this, [](void* pool, int64_t count, ParallelFor::Task task, void* state) {
              static_cast<ThreadPool*>(pool)->Run(count, task, state);
            }};
  }

 private:
  void Join() {
    is_over_ = true;
    StartRound();
    for (std::thread& thread : threads_) thread.join();
  }

  void Run(int64_t count, ParallelFor::Task task, void* state) {
    // Worker 0 is right for every such caller: its call has a state of its own.
    if (getpid() != process_ || is_serving_.exchange(true)) {
      for (int64_t index = 0; index < count; ++index) task(state, index, 0);
      return;
    }
    count_ = count;
    task_ = task;
    state_ = state;
    next_ = 0;
    busy_ = static_cast<int>(threads_.size());
    StartRound();
    Work(0);
    for (int busy = busy_; busy > 0; busy = busy_) busy_.wait(busy);
    is_serving_ = false;
  }

  void StartRound() {
    ++round_;
    round_.notify_all();
  }

  void Wait(int worker) {
    for (uint64_t round = 0;; ++round) {
      round_.wait(round);
      if (is_over_) return;
      Work(worker);
      if (--busy_ == 0) busy_.notify_one();
    }
  }

  void Work(int worker) {
    for (int64_t index = next_++; index < count_; index = next_++) task_(state_, index, worker);
  }

  const pid_t process_;
  std::atomic<bool> is_serving_ = false;
  int64_t count_ = 0;
  ParallelFor::Task task_ = nullptr;
  void* state_ = nullptr;
  std::atomic<int64_t> next_ = 0;
  std::atomic<int> busy_ = 0;
  std::atomic<uint64_t> round_ = 0;
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace sluice
