// Lines on standard error from any thread. Where its reader has stopped, lines are left out, and
// no thread waits for it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>

#include "cli/serve/access_log.h"

namespace sluice::cli {

class ErrorLog {
 public:
  ErrorLog() {
    if (::fcntl(STDERR_FILENO, F_GETFD) < 0) return;  // it is closed
    lines_.emplace(STDERR_FILENO, "standard error", [this](std::string_view line) { Say(line); });
  }

  void Write(std::string_view line) {
    if (lines_.has_value()) lines_->Write(line);
  }
  void Say(std::string_view line) { Write("sluice: " + std::string(line)); }

 private:
  std::optional<AccessLog> lines_;
};

}  // namespace sluice::cli
