// An engine of vLLM as a child process: its log is passed on, and when it ends it is started again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "link/child_process.h"
#include "link/file_descriptor.h"

namespace sluice::cli {

struct VllmEngineOptions {
  std::vector<std::string> command;
  std::chrono::milliseconds report_every{10'000};  // that it is loading
  std::chrono::milliseconds mercy{20'000};         // from the signal to end until it is killed
  // The first start after an end comes at once, the next ones wait for `delay`, twice that, and so
  // on up to `longest_delay`; from the beginning again where it answered for `settled`. After
  // `most_ends` that follow each other it stays as it is.
  std::chrono::milliseconds delay{1'000};
  std::chrono::milliseconds longest_delay{60'000};
  std::chrono::milliseconds settled{300'000};
  int32_t most_ends = 8;
  // On its thread: a line of its log, what becomes of it, and that it stays ended.
  std::function<void(std::string_view line)> on_line = {};
  std::function<void(std::string_view line)> log = {};
  std::function<void()> on_given_up = {};
};

class VllmEngine {
 public:
  // Starts it, on a thread of its own.
  explicit VllmEngine(VllmEngineOptions options);
  // Signals its first process to end, waits for that, and kills the rest of its group.
  ~VllmEngine();
  VllmEngine(const VllmEngine&) = delete;
  VllmEngine& operator=(const VllmEngine&) = delete;

  // The process that runs answers. From the first time on, an end is one to start it again after;
  // before that it is final.
  void SetReady();
  // Why it was given up; empty: it was not.
  std::string Failure() const;
  int pid() const;  // of the process that runs, or ran last
  int32_t starts() const;

 private:
  void Watch();
  // How it ended; empty when this object ends.
  std::string LiveOnce();
  std::string PassOn(link::ChildProcess& child);
  void Log(const std::string& line) const;
  bool Wait(std::chrono::milliseconds time) const;
  std::optional<std::chrono::steady_clock::time_point> ReadyAt() const;
  bool WasReady() const;
  void GiveUp(const std::string& why);

  const VllmEngineOptions options_;
  const link::FileDescriptor stopped_;  // readable from the end on
  mutable std::mutex mutex_;
  std::string failure_;
  int pid_ = -1;
  int32_t starts_ = 0;
  bool was_ready_ = false;
  std::optional<std::chrono::steady_clock::time_point> ready_at_;  // of this life
  std::jthread thread_;  // last: it uses what stands above
};

}  // namespace sluice::cli
