// A server over scripted engines, each a process of its own, for the bench of servers:
// what the engines did is seen from here through shared memory, what the server costs by its clock.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/serve/http_load.h"
#include "sluice/model_text.hpp"

namespace sluice::bench {

// The server has a processor of its own; the engines share the other one with the load.
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

// The log of an engine's process. Requests are known by the first id of their prompt.
struct StepLog {
  static constexpr int64_t kSteps = 1 << 20;
  static constexpr int64_t kRequests = 1 << 14;

  std::atomic<int64_t> steps;    // that are done
  std::atomic<int64_t> running;  // slots in use
  std::atomic<int64_t> done_ns[kSteps];
  // 1 more than the number of the one that gave the first token; 0: none has, at this engine.
  std::atomic<int32_t> behind_first_step[kRequests];

  // When the engine had token number `token` of a request; 0: not yet.
  int64_t TokenNs(int64_t request, int64_t token) const;
};

struct MockOptions {
  ModelText text;
  int32_t engines = 1;      // their steps begin evenly apart
  int32_t requests = 4096;  // slots of each
  std::chrono::nanoseconds step_time{};
  int32_t threads = 1;  // of the server
};

class ServedMock {
 public:
  // Throws std::runtime_error when a process does not come up.
  explicit ServedMock(const MockOptions& options);
  ~ServedMock();
  ServedMock(const ServedMock&) = delete;
  ServedMock& operator=(const ServedMock&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  int64_t running() const;  // slots in use
  int64_t TokenNs(int64_t request, int64_t token) const;
  double ServerCpuSeconds() const;
  int64_t ServerResidentBytes() const;

  void KillEngines();
  void StartEngines();  // others at the same places

 private:
  void StartEngine(size_t number);
  void StartServer();

  MockOptions options_;
  std::span<StepLog> logs_;  // one an engine
  std::vector<std::string> endpoints_of_engines_;
  std::vector<pid_t> engines_;
  pid_t server_ = -1;
  Endpoint endpoint_;
};

}  // namespace sluice::bench
