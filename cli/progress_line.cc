#include "cli/progress_line.h"

#include <unistd.h>

#include <iostream>

namespace sluice::cli {

// The first tenth of a second is shown by nothing: most work is done by then.
constexpr std::chrono::milliseconds kInterval(100);

ProgressLine::ProgressLine(bool is_quiet, bool is_relayed)
    : is_shown_(is_relayed || (!is_quiet && isatty(STDERR_FILENO) != 0)),
      next_(std::chrono::steady_clock::now() + kInterval) {}

void ProgressLine::Show(const char* what, int64_t done, int64_t total) {
  if (!is_shown_) return;
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  is_drawn_ = true;
  const int64_t percent = total > 0 ? 100 * done / total : 0;
  std::cerr << "\r\x1b[K" << what << ' ' << percent << " %" << std::flush;
}

void ProgressLine::Clear() {
  const std::lock_guard lock(mutex_);
  if (is_drawn_) std::cerr << "\r\x1b[K" << std::flush;
  is_drawn_ = false;
}

}  // namespace sluice::cli
