#include "cli/serve/stop_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace sluice::cli {
namespace {

constexpr char kSignal = 's';
constexpr char kEnd = 'e';
constexpr char kHangup = 'h';

volatile int write_end = -1;
volatile std::sig_atomic_t requests_left = 0;
volatile std::sig_atomic_t takes_hangup = 0;

void WriteToPipe(char what) {
  const int error = errno;
  if (write(write_end, &what, 1) < 0) errno = 0;  // a full pipe wakes the reader too
  errno = error;
}

void HandleHangup(int) { WriteToPipe(kHangup); }

void HandleSignal(int) {
  requests_left = requests_left - 1;
  if (requests_left == 0) {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGINT, &usual, nullptr);
    sigaction(SIGTERM, &usual, nullptr);
    if (takes_hangup != 0) sigaction(SIGHUP, &usual, nullptr);
  }
  WriteToPipe(kSignal);
}

}  // namespace

void IgnoreHarmlessSignals() {
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  // A file at its limit of bytes (SIGXFSZ) is an error of the write, as a full disk is.
  for (const int number : {SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ}) {
    sigaction(number, &ignored, nullptr);
  }
}

StopSignal::StopSignal(Requests requests, std::function<void()> on_hangup)
    : on_hangup_(std::move(on_hangup)) {
  if (pipe2(pipe_, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe");
  }
  write_end = pipe_[1];
  requests_left = requests;
  thread_ = std::thread([this] {
    char what = 0;
    while (what != kEnd) {
      const ssize_t size = read(pipe_[0], &what, 1);
      if (size < 0 && errno != EINTR) return;
      // request_stop is false where a stop was requested before.
      if (size == 1 && what == kHangup) on_hangup_();
      if (size == 1 && what == kSignal && !source_.request_stop()) now_.request_stop();
    }
  });
  struct sigaction action = {};
  action.sa_handler = HandleSignal;
  action.sa_flags = SA_RESTART;
  // A second signal waits until the first one has been handled.
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaddset(&action.sa_mask, SIGHUP);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_termination_);
  sigaction(SIGHUP, nullptr, &old_hangup_);
  takes_hangup = on_hangup_ || old_hangup_.sa_handler == SIG_IGN ? 0 : 1;
  if (on_hangup_) action.sa_handler = HandleHangup;
  if (on_hangup_ || takes_hangup != 0) sigaction(SIGHUP, &action, nullptr);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_termination_, nullptr);
  sigaction(SIGHUP, &old_hangup_, nullptr);
  WriteToPipe(kEnd);
  thread_.join();
  close(pipe_[0]);
  close(pipe_[1]);
}

}  // namespace sluice::cli
