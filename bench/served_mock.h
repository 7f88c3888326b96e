// A server and a scripted engine behind it, each a process of its own, for the bench of servers:
// what the engine did is seen from here through shared memory, what the server costs by its clock.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/http_load.h"
#include "sluice/model_text.hpp"

namespace sluice::bench {

// The server has a processor of its own; the engine shares the other one with the load.
inline constexpr int kServerProcessor = 0;
inline constexpr int kClientProcessor = 1;
void PinToProcessor(int processor);  // where there are several

// This thread, for a while.
class ScopedPin {
 public:
  explicit ScopedPin(int processor);
  ~ScopedPin();
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

 private:
  cpu_set_t before_;
};

// What the engine's process tells. Requests are known by the first id of their prompt.
struct StepLog {
  static constexpr int64_t kSteps = 1 << 20;
  static constexpr int64_t kRequests = 1 << 14;

  std::atomic<int64_t> steps;    // that are done
  std::atomic<int64_t> running;  // slots in use
  std::atomic<int64_t> done_ns[kSteps];
  std::atomic<int32_t> first_step[kRequests];  // the one that gave the first token

  // When the engine had token number `token` of a request; 0: not yet.
  int64_t TokenNs(int64_t request, int64_t token) const;
};

struct MockOptions {
  ModelText text;
  int32_t requests = 4096;  // slots
  std::chrono::nanoseconds step_time{};
  int32_t threads = 1;  // of the server
};

class ServedMock {
 public:
  // Throws std::runtime_error when one of the two does not come up.
  explicit ServedMock(const MockOptions& options);
  ~ServedMock();
  ServedMock(const ServedMock&) = delete;
  ServedMock& operator=(const ServedMock&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  const StepLog& log() const { return *log_; }
  double ServerCpuSeconds() const;
  int64_t ServerResidentBytes() const;

  void KillEngine();
  void StartEngine();  // another one at the same place

 private:
  void StartServer();

  MockOptions options_;
  StepLog* log_;
  std::string engine_endpoint_;
  pid_t engine_ = -1;
  pid_t server_ = -1;
  Endpoint endpoint_;
};

}  // namespace sluice::bench
