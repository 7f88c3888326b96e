// Families of metrics as they are written, and sums of what the loops counted.
#pragma once

#include <prometheus/metric_family.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/metrics/metrics_board.h"

namespace sluice::server {

using Histogram = CompletionCounters::Histogram;

class Families {
  using ClientMetric = prometheus::ClientMetric;
  using MetricFamily = prometheus::MetricFamily;
  using MetricType = prometheus::MetricType;

 public:
  using Labels = std::vector<ClientMetric::Label>;

  std::vector<MetricFamily> Take() { return std::move(families_); }

  // The next families; each is followed by its values.
  void Counter(std::string name, std::string help) {
    Begin(std::move(name), std::move(help), MetricType::Counter);
  }
  void Gauge(std::string name, std::string help) {
    Begin(std::move(name), std::move(help), MetricType::Gauge);
  }

  void Value(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }
  void Value(int64_t value, Labels labels = {}) {
    Value(static_cast<double>(value), std::move(labels));
  }

  void Counter(std::string name, std::string help, int64_t value) {
    Counter(std::move(name), std::move(help));
    Value(value);
  }
  void Gauge(std::string name, std::string help, int64_t value) {
    Gauge(std::move(name), std::move(help));
    Value(value);
  }
  void Distribution(std::string name, std::string help, const Histogram& histogram,
                    Labels labels = {}) {
    Begin(std::move(name), std::move(help), MetricType::Histogram);
    Buckets(histogram.buckets, histogram.sum, [](size_t i) { return Histogram::kBounds[i]; });
    families_.back().metric.back().label = std::move(labels);
  }
  // Writes the distribution of values that count `unit`s.
  template <int kCounts>
  void Distribution(std::string name, std::string help, const PowersOfTwo<kCounts>& powers,
                    double unit) {
    Begin(std::move(name), std::move(help), MetricType::Histogram);
    Buckets(powers.counts, static_cast<double>(powers.sum) * unit,
            [unit](size_t i) { return std::ldexp(unit, static_cast<int>(i)); });
  }

 private:
  // bound(i): what is in bucket i is no larger; the last one has the rest.
  template <typename Bound>
  void Buckets(std::span<const int64_t> counts, double sum, Bound bound) {
    ClientMetric metric;
    uint64_t below = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      below += static_cast<uint64_t>(counts[i]);
      const bool is_last = i + 1 == counts.size();
      metric.histogram.bucket.push_back(
          {below, is_last ? std::numeric_limits<double>::infinity() : bound(i)});
    }
    metric.histogram.sample_count = below;
    metric.histogram.sample_sum = sum;
    families_.back().metric.push_back(std::move(metric));
  }
  void Begin(std::string name, std::string help, MetricType type) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }

  std::vector<MetricFamily> families_;
};

// Sums over the loops.
template <typename Of>
int64_t Sum(std::span<const LoopMetrics> loops, Of of) {
  int64_t sum = 0;
  for (const LoopMetrics& loop : loops) sum += std::invoke(of, loop);
  return sum;
}

inline int64_t SumCompletions(std::span<const LoopMetrics> loops,
                              int64_t CompletionCounters::* counter) {
  return Sum(loops, [&](const LoopMetrics& loop) { return loop.completions.*counter; });
}

inline int64_t SumClients(std::span<const LoopMetrics> loops, int64_t ClientCounters::* counter) {
  return Sum(loops, [&](const LoopMetrics& loop) { return loop.client.*counter; });
}

template <int kCounts>
PowersOfTwo<kCounts> SumPowers(std::span<const LoopMetrics> loops,
                               PowersOfTwo<kCounts> ClientCounters::* which) {
  PowersOfTwo<kCounts> sum;
  for (const LoopMetrics& loop : loops) {
    const PowersOfTwo<kCounts>& one = loop.client.*which;
    for (int i = 0; i < kCounts; ++i) sum.counts[i] += one.counts[i];
    sum.sum += one.sum;
  }
  return sum;
}

inline Histogram SumHistograms(std::span<const LoopMetrics> loops,
                               Histogram CompletionCounters::* which) {
  Histogram sum;
  for (const LoopMetrics& loop : loops) {
    const Histogram& one = loop.completions.*which;
    for (size_t i = 0; i < std::size(sum.buckets); ++i) sum.buckets[i] += one.buckets[i];
    sum.count += one.count;
    sum.sum += one.sum;
  }
  return sum;
}

}  // namespace sluice::server
