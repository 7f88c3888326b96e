// Times of single calls, and what is said about many of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace sluice::bench {

// Nanoseconds that one call takes, by the steady clock: reading it twice costs some 30 ns, which
// stay in.
template <typename Call>
double TimeOf(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::nano>(end - start).count();
}

// Takes a value where the compiler cannot see what becomes of it: what only goes here is computed.
void Consume(float value);

// One number for calls on many rows, in nanoseconds; 0 when there were none.
struct Timing {
  int64_t calls = 0;
  double median = 0.0;
  double mean = 0.0;  // without the slowest hundredth: those were interrupted
  double floor =
      0.0;  // median of one streaming read of the same rows, taken in turns with the calls

  double TimesFloor() const { return median / floor; }
  double MeanTimesFloor() const { return mean / floor; }
};

// Sorts the values; 0 when there are none.
double MedianOf(std::vector<double>& values);

// What was measured so far: times of calls, and of the floor next to each.
struct Samples {
  std::vector<double> times;
  std::vector<double> floors;
  double used = 0.0;  // the sum of the times
};

Timing Summary(Samples samples);

}  // namespace sluice::bench
