// A few lines a second; of the others the number.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "support/number.h"

namespace sluice::link {

class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLines = 4;  // in one second, and one more with the number of those left out

  explicit LogLimit(std::function<void(std::string_view)> log) : log_(std::move(log)) {}

  bool is_on() const { return log_ != nullptr; }
  bool owes() const { return left_out_ > 0; }

  void Say(std::string_view line, Clock::time_point now = Clock::now()) {
    if (!is_on()) return;
    Tick(now);
    if (lines_ == kLines) {
      ++left_out_;
      return;
    }
    ++lines_;
    log_(line);
  }

  // When the second is over, says how many lines it had too many.
  void Tick(Clock::time_point now = Clock::now()) {
    if (now - begin_ < std::chrono::seconds(1)) return;
    begin_ = now;
    lines_ = 0;
    if (left_out_ > 0) log_(std::string("and ").append(Number(left_out_)).append(" more"));
    left_out_ = 0;
  }

 private:
  std::function<void(std::string_view)> log_;
  Clock::time_point begin_ = {};
  int lines_ = 0;
  int64_t left_out_ = 0;
};

}  // namespace sluice::link
