#include "bench/support/stopwatch.h"

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

Timing Summary(Samples samples) {
  Timing timing;
  timing.calls = static_cast<int64_t>(samples.times.size());
  timing.median = MedianOf(samples.times);
  timing.floor = MedianOf(samples.floors);
  const size_t kept = samples.times.size() - samples.times.size() / 100;
  for (size_t i = 0; i < kept; ++i) timing.mean += samples.times[i] / static_cast<double>(kept);
  return timing;
}

}  // namespace sluice::bench
