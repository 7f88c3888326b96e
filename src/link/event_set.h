// One file descriptor for everything that a client waits for: of ZeroMQ's sockets, and of time.
//
// ZeroMQ's descriptors are readable when something has happened since the last look, not while
// there is something to read: what was seen and left, or came to light while something was sent,
// must be reported by WakeAt(now).
#pragma once

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "sluice/error.hpp"

namespace sluice::link {

class EventSet {
 public:
  using Clock = std::chrono::steady_clock;

  EventSet()
      : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
        timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    epoll_event event{};
    event.events = EPOLLIN;
    const bool is_good = epoll_fd_ >= 0 && timer_fd_ >= 0 &&
                         epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, timer_fd_, &event) == 0;
    if (is_good) return;
    Close();
    throw Error(ErrorCode::kExhausted, "event_fd", "none", "a free file descriptor");
  }
  ~EventSet() { Close(); }
  EventSet(const EventSet&) = delete;
  EventSet& operator=(const EventSet&) = delete;

  int fd() const { return epoll_fd_; }

  // The descriptor is readable from then on, at the latest.
  void WakeAt(Clock::time_point when, Clock::time_point now) {
    if (when >= wakes_at_) return;
    wakes_at_ = when;
    SetTimer(std::max<std::chrono::nanoseconds>(when - now, std::chrono::nanoseconds(1)));
  }
  // Called while the cause of the wake-up is handled.
  void Clear() {
    if (wakes_at_ == Clock::time_point::max()) return;
    wakes_at_ = Clock::time_point::max();
    SetTimer({});
  }

 private:
  // Setting it also takes back that it has run out.
  void SetTimer(std::chrono::nanoseconds in) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(in);
    itimerspec spec{};
    spec.it_value.tv_sec = static_cast<time_t>(seconds.count());
    spec.it_value.tv_nsec = static_cast<long>((in - seconds).count());
    timerfd_settime(timer_fd_, 0, &spec, nullptr);
  }
  void Close() const {
    if (epoll_fd_ >= 0) close(epoll_fd_);
    if (timer_fd_ >= 0) close(timer_fd_);
  }

  int epoll_fd_;
  int timer_fd_;
  Clock::time_point wakes_at_ = Clock::time_point::max();
};

}  // namespace sluice::link
