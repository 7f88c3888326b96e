// Does a sample follow a law? The exact set is asserted first; this says whether the frequencies
// inside it are the expected ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace sluice::test {

// Pearson's statistic. probabilities sum to 1; cells with an expected count below 5 are pooled.
struct ChiSquare {
  double statistic = 0.0;
  int degrees_of_freedom = -1;
};

inline ChiSquare ChiSquareOf(std::span<const int64_t> counts,
                             std::span<const double> probabilities) {
  int64_t draws = 0;
  for (const int64_t count : counts) draws += count;
  ChiSquare result;
  double pooled_expected = 0.0;
  double pooled_count = 0.0;
  auto add = [&result](double count, double expected) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++result.degrees_of_freedom;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(draws);
    if (expected < 5.0) {
      pooled_expected += expected;
      pooled_count += static_cast<double>(counts[i]);
    } else {
      add(static_cast<double>(counts[i]), expected);
    }
  }
  if (pooled_expected > 0.0) add(pooled_count, pooled_expected);
  return result;
}

// The value that chi-square exceeds with probability 1e-6 or less, by the Wilson-Hilferty cube (z =
// 4.753). Above the exact quantile by 15 % at one degree of freedom, 2.3 % at ten.
inline double ChiSquareLimit(int degrees_of_freedom) {
  const double k = degrees_of_freedom;
  const double root = 1.0 - 2.0 / (9.0 * k) + 4.753 * std::sqrt(2.0 / (9.0 * k));
  return k * root * root * root;
}

}  // namespace sluice::test
