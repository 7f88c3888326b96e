// Where the time of a step goes.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice::engine {

// Nanoseconds since it was made or last read.
class Clock {
 public:
  int64_t Lap() {
    const auto now = std::chrono::steady_clock::now();
    const auto lap = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_);
    last_ = now;
    return lap.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace sluice::engine
