// When what is closed cannot matter, and how many rows a search may open: the rules of searches on
// every backend. Masses are sums of exponentials in fp64, in any order; what rounding makes of them
// is within kSumSlack.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "semantics/host_device.h"
#include "sluice/research/clusters.hpp"

namespace sluice::research {

// Sums of exponentials in fp64 are off by less, relative to themselves: 2^23 additions are off by
// 9.4e-10 at most, an exponential of a computed argument by 2e-13.
inline constexpr double kSumSlack = 1e-9;

// In a mass relative to that of the largest open logit.
SLUICE_HD inline double ClusterWeight(double x, float most, double temperature) {
  return std::exp((x - static_cast<double>(most)) / temperature);
}

// First k: so many open logits are above every closed bound. Above, not equal: ties have an order.
SLUICE_HD inline bool IsAboveClosed(float x, double most_closed) {
  return most_closed < static_cast<double>(x);
}

// mass: of what is open; closed: at most that of what is not.
SLUICE_HD inline bool SoftmaxHolds(double closed, double mass, double epsilon) {
  return closed * (1.0 + kSumSlack) <= epsilon / (1.0 - epsilon) * mass * (1.0 - kSumSlack);
}

// Between the softmax of what is open and that of all.
SLUICE_HD inline double MostVariation(double closed, double mass) {
  const double most = closed * (1.0 + kSumSlack);
  return most / (mass + most) * (1.0 + kSumSlack);
}

// Where top-p may end: with the first open token at which the running mass reaches p of the least
// whole, at the latest with that which reaches p of the largest. Of all rows nothing is uncertain
// but a mass next to p, and that is where rounding says.
struct NucleusEnds {
  double low;
  double high;
};
SLUICE_HD inline NucleusEnds NucleusEndsOf(double p, double mass, double closed, bool is_all) {
  if (is_all) return {p * mass, p * mass};
  const double most = closed * (1.0 + kSumSlack);
  return {p * mass * (1.0 - kSumSlack), p * (mass + most) * (1.0 + kSumSlack)};
}

SLUICE_HD inline ClusterPace StartOf(const ClusterBudget& budget, int64_t vocab) {
  return {budget.rows > 0.0 ? budget.rows : static_cast<double>(vocab) / 8.0, 0.0, 0};
}

// Of the next question.
SLUICE_HD inline double RowsOfNext(const ClusterPace& pace, const ClusterBudget& budget,
                                   int64_t vocab) {
  if (pace.steps >= budget.first_steps) return pace.rows;
  return budget.first_rows > 0.0 ? budget.first_rows : 2.0 * StartOf(budget, vocab).rows;
}

// Call it after an answer.
SLUICE_HD inline void Follow(ClusterPace& pace, const ClusterBudget& budget, int64_t vocab,
                             bool is_dense) {
  ++pace.steps;
  const double answers = static_cast<double>(pace.steps < 100 ? pace.steps : 100);
  pace.dense_share += ((is_dense ? 1.0 : 0.0) - pace.dense_share) / answers;
  const double rows = pace.rows * (1.0 + budget.gain * (pace.dense_share - budget.target));
  const auto most = static_cast<double>(vocab);
  pace.rows = rows < 1.0 ? 1.0 : rows > most ? most : rows;
}

// Throws Error.
void CheckQuestion(const ClusterQuestion& question, int64_t vocab);

}  // namespace sluice::research
