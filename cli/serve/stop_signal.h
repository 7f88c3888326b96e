// Ctrl-C and termination, as a std::stop_token of a program that serves until a signal ends it.
#pragma once

#include <csignal>
#include <functional>
#include <stop_token>
#include <thread>

namespace sluice::cli {

// For the rest of the process SIGPIPE, SIGUSR1 and SIGUSR2 do not end it: a server outlives the
// reader of its standard error. Call it before anything is loaded. Children that StartChild starts
// have the usual signals again.
void IgnoreHarmlessSignals();

// While the object lives, the first SIGINT, SIGTERM or SIGHUP (the terminal closes) requests a
// stop; a SIGHUP that nohup ignores stays ignored. With `on_hangup` SIGHUP calls that instead, on
// the thread of the object, ignored before or not. With kOnce a second signal, any of them, ends
// the program at once; with kTwice it requests a stop now, and a third one ends the program. One
// object at a time; it has a thread, because a signal handler may not run the callbacks of a stop.
class StopSignal {
 public:
  enum Requests : int { kOnce = 1, kTwice = 2 };

  explicit StopSignal(Requests requests = kOnce, std::function<void()> on_hangup = {});
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
  struct sigaction old_hangup_;
  int pipe_[2];
  const std::function<void()> on_hangup_;
  std::thread thread_;
};

}  // namespace sluice::cli
