// What connections wait for, and for how long. Every wait of one kind is equally long, so each kind
// is a list in the order of its deadlines: entering and leaving takes no time and no memory, and
// one timer looks at the fronts.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace sluice::server {

enum class WaitKind : uint8_t { kIdle, kHead, kBody, kWrite, kLinger };
inline constexpr size_t kWaitKinds = 5;

using DeadlineHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<class DeadlineTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// A connection that waits for one thing at a time.
class Timed : public DeadlineHook {
 public:
  bool waits() const { return DeadlineHook::is_linked(); }
  WaitKind wait_kind() const { return kind_; }

 private:
  friend class Deadlines;
  std::chrono::steady_clock::time_point deadline_;
  WaitKind kind_ = WaitKind::kIdle;
};

class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;  // no jump of the wall clock ends a wait

  explicit Deadlines(const std::array<std::chrono::milliseconds, kWaitKinds>& limits)
      : limits_(limits) {}

  void Enter(Timed& timed, WaitKind kind, Clock::time_point now) {
    Leave(timed);
    timed.kind_ = kind;
    timed.deadline_ = now + limits_[static_cast<size_t>(kind)];
    lists_[static_cast<size_t>(kind)].push_back(timed);
  }
  static void Leave(Timed& timed) {
    if (timed.waits()) timed.DeadlineHook::unlink();
  }

  // One that is past its deadline, no longer waiting; null when there is none.
  Timed* TakeLate(Clock::time_point now) {
    for (List& list : lists_) {
      if (list.empty() || list.front().deadline_ > now) continue;
      Timed& timed = list.front();
      Leave(timed);
      return &timed;
    }
    return nullptr;
  }

  bool empty() const {
    for (const List& list : lists_) {
      if (!list.empty()) return false;
    }
    return true;
  }

 private:
  using List = boost::intrusive::list<Timed, boost::intrusive::base_hook<DeadlineHook>,
                                      boost::intrusive::constant_time_size<false>>;
  std::array<std::chrono::milliseconds, kWaitKinds> limits_;
  std::array<List, kWaitKinds> lists_;
};

}  // namespace sluice::server
