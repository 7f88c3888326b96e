// An engine as a child process that is started again whenever it ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "link/file_descriptor.h"
#include "sluice/engine_process.hpp"

namespace sluice::cli {

struct EngineSupervisorOptions {
  // A program and its arguments, as EngineProcess has them. It listens where it did before: its
  // frontends look for it there.
  std::vector<std::string> command;
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);  // a large model is read
  // The first start after an end comes at once, the next ones wait for `delay`, twice that, and so
  // on up to `longest_delay`; from the beginning again after one that lived for `settled`.
  std::chrono::milliseconds delay{1'000};
  std::chrono::milliseconds longest_delay{30'000};
  std::chrono::milliseconds settled{60'000};
  // Called on its thread: that the engine ended, and how, and that it is there again.
  std::function<void(std::string_view line)> log = {};
};

class EngineSupervisor {
 public:
  // Returns when the engine listens. Throws what EngineProcess throws, also when `stop` comes
  // first; later on a stop ends nothing but the starting again. Has a thread.
  EngineSupervisor(EngineSupervisorOptions options, const std::stop_token& stop);
  // Sends the engine a signal to end, and kills it after two seconds.
  ~EngineSupervisor();
  EngineSupervisor(const EngineSupervisor&) = delete;
  EngineSupervisor& operator=(const EngineSupervisor&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  int pid() const;  // of the engine that runs, or ran last
  int64_t restarts() const;

 private:
  void Watch(const std::stop_token& stop);
  // How the engine ended; nothing when a stop came first.
  std::optional<std::string> WaitForEnd(const std::stop_token& stop);
  bool StartAgain(const std::stop_token& stop);
  void Log(const std::string& line) const;

  const EngineSupervisorOptions options_;
  const link::FileDescriptor stopped_;    // readable from the end on
  std::optional<EngineProcess> process_;  // of the thread, once that runs
  std::string endpoint_;
  mutable std::mutex mutex_;
  int pid_ = -1;
  int64_t restarts_ = 0;
  std::jthread thread_;  // last: it uses what stands above
};

}  // namespace sluice::cli
