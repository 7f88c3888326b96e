// Where and with what a call runs: backend and algorithm by name, sluice.Threads, and a workspace
// that each thread of Python keeps from call to call.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "python/keywords.h"
#include "sluice/execution.hpp"
#include "sluice/research/algorithms.hpp"

namespace sluice::python {

namespace nb = nanobind;

inline constexpr Keywords kExecutionKeywords = {Keyword::backend, Keyword::algorithm,
                                                Keyword::threads};

// A parallel-for over threads that wait for work; the caller is worker 0. While it serves a call,
// another one (from a thread, or from a processor within the first) runs on its own thread alone,
// and so does every call in a forked process, which has none of the threads.
class Threads {
 public:
  explicit Threads(int workers);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }
  ParallelFor parallel();

 private:
  void Run(int64_t count, ParallelFor::Task task, void* state);
  void StartRound();
  void Wait(int worker);
  void Work(int worker);

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

Backend BackendFrom(nb::handle name);
ParallelFor ParallelFrom(nb::handle threads);

// An Execution, and the algorithm that selects, which may be one of research.
struct SelectExecution : Execution {
  research::Algorithm select_by = research::Algorithm::kAuto;
};

// Everything but the workspace.
SelectExecution ExecutionFrom(const Arguments& arguments);

// This thread's workspace, of at least so many bytes.
std::span<std::byte> Workspace(size_t bytes);

void BindExecution(nb::module_& module);

}  // namespace sluice::python
