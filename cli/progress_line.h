// How far a long piece of work is, on standard error: a line that is redrawn on a terminal, nothing
// in a file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace sluice::cli {

class ProgressLine {
 public:
  // Shows nothing when `is_quiet`, unless another process passes on what is written to its own
  // terminal: `is_relayed`.
  explicit ProgressLine(bool is_quiet, bool is_relayed = false);
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // "loading 42 %". From any thread; drawn every tenth of a second.
  void Show(const char* what, int64_t done, int64_t total);
  void Clear();

 private:
  const bool is_shown_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point next_;
  bool is_drawn_ = false;
};

}  // namespace sluice::cli
