// Ctrl-C and termination, as a flag that a loop reads between two steps.
#pragma once

#include <csignal>

namespace sluice::cli {

// Thrown when everything is said, for main to exit with 128 and the signal's number, as shells do:
// 130 after Ctrl-C.
struct Interrupted {
  int signal;
};

// From here to the end of its life the first SIGINT or SIGTERM is only noted. A second one ends the
// program at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that came, or 0.
  int signal() const;
  void ThrowIfInterrupted() const {
    if (signal() != 0) throw Interrupted{signal()};
  }

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_termination_;
};

}  // namespace sluice::cli
