// The bounds of clusters: no row of a cluster has a larger logit, as semantics/dot.h defines it and
// with its bias, than the bound that its ball or its cone gives. docs/notes/clusters.md has the
// proofs.
//
// Ball: w = mu + r, ||r|| <= R, so w.h <= mu.h + R ||h|| (Cauchy-Schwarz).
//
// Cone: let theta be the largest angle of a row and mu, phi that of h and mu. Angles are distances
// on the sphere, so no row's angle with h is below phi - theta, and the cosine falls with the
// angle: w.h = ||w|| ||h|| cos(angle) <= ||w|| ||h|| cos(max(0, phi - theta)), with the largest
// norm of the cluster where that cosine is positive and the least where it is not.
//
// mu is any point, so some rows of a cluster may have a shape of their own around the same mu: the
// bias of one row then is no matter of the others'.
//
// Both hold of real numbers. The defined logit is off by at most gamma ||w|| ||h|| (c additions
// deep, c = ceil(d / 128) + 7), and adding the bias rounds once more. What is computed here in fp64
// is off by less than 10^-9 of ||mu|| ||h||, whatever the order of its additions (2^20 of them are
// off by 1.2e-10), which kClusterSlack has room for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "semantics/host_device.h"

namespace sluice::research {

struct ClusterShape {
  float radius;      // of the ball, rounded up
  float angle;       // of the cone, rounded up; pi where there is no direction
  float least_norm;  // of the rows, rounded down
  float most_norm;   // rounded up
  float norm;        // of the centroid, rounded up
  float bias;        // of the centroid when biases are folded in, else the largest of the rows
  int32_t begin;     // of its tokens in the list of all
  int32_t size;
  int32_t centroid;  // shapes of one centroid lie side by side
};

// Of one hidden state.
struct HiddenNorm {
  double norm;      // ||h||, rounded up
  double extended;  // sqrt(||h||^2 + 1)
};

inline constexpr double kClusterSlack = 1e-9;

SLUICE_HD inline HiddenNorm HiddenNormOf(double squares) {
  return {std::sqrt(squares) * (1.0 + kClusterSlack),
          std::sqrt(squares + 1.0) * (1.0 + kClusterSlack)};
}

SLUICE_HD inline double ClusterGamma(int64_t dim) {
  const double depth = static_cast<double>((dim + 127) / 128 + 7) * 0x1p-24;
  return depth / (1.0 - depth) + kClusterSlack;
}

// The rounding of logits and of these lines, in addition to a bound, which holds for real numbers.
SLUICE_HD inline double RoundedBound(const ClusterShape& shape, double bound, double norm,
                                     double gamma) {
  const double most = static_cast<double>(std::max(shape.most_norm, shape.norm));
  const double real = bound + gamma * most * norm;
  return real + std::abs(real) * 0x1p-23 + 0x1p-140;
}

// product: mu.h. folds_bias: rows are one element longer, and so is h by an element 1.
SLUICE_HD inline double BallBound(const ClusterShape& shape, double product,
                                  const HiddenNorm& hidden, double gamma, bool folds_bias) {
  const double norm = folds_bias ? hidden.extended : hidden.norm;
  const double bias = static_cast<double>(shape.bias);
  return RoundedBound(shape, product + static_cast<double>(shape.radius) * norm + bias, norm,
                      gamma);
}

// Biases are not folded in.
SLUICE_HD inline double ConeBound(const ClusterShape& shape, double product,
                                  const HiddenNorm& hidden, double gamma) {
  const double scale = static_cast<double>(shape.norm) * hidden.norm;
  const double bias = static_cast<double>(shape.bias);
  if (!(scale > 0.0)) return RoundedBound(shape, bias, hidden.norm, gamma);
  const double cosine = std::clamp(product / scale + 4.0 * kClusterSlack, -1.0, 1.0);
  // Norms are rounded up, so a positive cosine is too small by their rounding.
  const double angle = std::acos(std::min(1.0, cosine + std::abs(cosine) * 0x1p-20));
  const double toward =
      std::cos(std::max(0.0, angle - static_cast<double>(shape.angle))) + kClusterSlack;
  const double norm = static_cast<double>(toward > 0.0 ? shape.most_norm : shape.least_norm);
  return RoundedBound(shape, norm * hidden.norm * toward + bias, hidden.norm, gamma);
}

// Of a cluster of either kind; no number is no bound.
SLUICE_HD inline double ClusterBound(const ClusterShape& shape, double product,
                                     const HiddenNorm& hidden, double gamma, bool is_cone,
                                     bool folds_bias) {
  const double bound = is_cone ? ConeBound(shape, product, hidden, gamma)
                               : BallBound(shape, product, hidden, gamma, folds_bias);
  return bound == bound ? bound : HUGE_VAL;
}

}  // namespace sluice::research
