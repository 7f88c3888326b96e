#include "bench/stopwatch.h"

#include <algorithm>

namespace sluice::bench {
namespace {

volatile float g_sink;

}  // namespace

void Consume(float value) { g_sink = value; }

double MedianOf(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n == 0 ? 0.0 : 0.5 * (values[(n - 1) / 2] + values[n / 2]);
}

Timing Summary(std::vector<double> times, std::vector<double> floors) {
  Timing timing;
  timing.calls = static_cast<int64_t>(times.size());
  timing.median = MedianOf(times);
  timing.floor = MedianOf(floors);
  const size_t kept = times.size() - times.size() / 100;
  for (size_t i = 0; i < kept; ++i) timing.mean += times[i] / static_cast<double>(kept);
  return timing;
}

}  // namespace sluice::bench
