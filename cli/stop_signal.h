// Ctrl-C and termination, as a std::stop_token for what serves until it is asked to end.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace sluice::cli {

// From here to the end of its life the first SIGINT or SIGTERM asks for a stop. With kOnce a second
// one, either of them, ends the program at once; with kTwice it asks for a stop now, and a third
// one ends the program. One at a time; it has a thread, because a signal handler may not call what
// waits for a stop.
class StopSignal {
 public:
  enum Asks : int { kOnce = 1, kTwice = 2 };

  explicit StopSignal(Asks asks = kOnce);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  std::stop_token now() const { return now_.get_token(); }

 private:
  std::stop_source source_;
  std::stop_source now_;
  struct sigaction old_interrupt_;
  struct sigaction old_termination_;
  int pipe_[2];
  std::thread thread_;
};

}  // namespace sluice::cli
