// The mathematics of the certificates: how far the score that a plane gives may lie from the logit
// that semantics/dot.h defines. docs/certified-head-proof.md has the proofs in full.
//
// A row w of the head is kept as w = s_g (q + u) + E in groups of 128 elements: a scale s_g a
// group, integer codes |q| <= 7, a dither u that all rows share (0 in strict planes), the rest E.
// The hidden state h is rounded to h^ (hidden_codes.h). For each row, with
//
//   v = sqrt(sum_g s_g^2 n_g^2),  n_g >= ||h_g||,  rho >= ||h_g - h^_g|| / n_g for every g,
//
// the score a = sum_g s_g (q + u).h^_g and the defined logit x (before the bias) differ by
//
//   E.h              dither:  at most kappa v, but for a probability of 2 exp(-6 kappa^2), because
//                    the E_j / s_g are independent and uniform on [-1/2, 1/2] whatever w is, and a
//                    uniform is sub-Gaussian with its own variance (Hoeffding's bound then reads
//                    exp(-6 t^2 / v^2)); kappa is set by the union over all rows.
//                    strict:  at most ||E|| ||h|| (Cauchy-Schwarz), always.
//   s (q + u).(h - h^)   at most sum_g 7.5 sqrt(128) s_g rho n_g
//   rounding of x        at most gamma_c sum |w_j h_j|, c = ceil(d / 128) + 7 additions deep, and
//                        |w_j| <= 7 s_g
//   rounding of a        at most (2 G + 6) 2^-23 times the sum of what is added
//
// and every sum over g of s_g n_g is at most sqrt(G) v. So all of it is one factor of v a step,
// computed once a hidden state, and one product a row. Underflow adds less than 2^-60 of that
// factor, and nothing overflows where v^2 is finite; where it is not, the width is +inf or NaN and
// the row is computed exactly.
#pragma once

#include <cmath>
#include <cstdint>

#include "semantics/host_device.h"

namespace sluice {

inline constexpr int kPlaneGroup = 128;  // elements that share a scale

// A hidden state of which some interval is wrong is one in 10^18.
inline constexpr double kDitherFailure = 1e-18;

// Scales and norms are not below it, so that no square underflows.
inline constexpr double kLeastScale = 0x1p-60;

// The distance of two neighbouring values of u. The mean of E / s is within it of 0.
inline constexpr double kDitherStep = 0x1p-22;

// 2 V exp(-6 kappa^2) = failure.
inline double DitherKappa(int64_t vocab, double failure) {
  return std::sqrt(std::log(2.0 * static_cast<double>(vocab) / failure) / 6.0);
}

// What turns v and a row's error norm into the half width of its interval, for one hidden state.
struct StepBound {
  float factor = 0.0f;  // of v
  float norm = 0.0f;    // of ||E||: ||h||, and 0 where the dither bounds E.h
};

// Every float below is rounded up by a few units; that of the sum of squares, the root and the
// product in HalfWidth is in its last factor.
SLUICE_HD inline float RoundedUp(double x) { return static_cast<float>(x * (1.0 + 0x1p-22)); }

// kappa: 0 for strict planes. hidden_norm: ||h||, and 0 for dithered ones.
SLUICE_HD inline StepBound StepBoundOf(int64_t dim, double kappa, double hidden_norm, double rho) {
  constexpr double kUnit = 0x1p-24;
  const double root = std::sqrt(static_cast<double>(kPlaneGroup));
  const double groups = static_cast<double>((dim + kPlaneGroup - 1) / kPlaneGroup);
  const double depth = groups + 7.0;
  const double gamma = depth * kUnit / (1.0 - depth * kUnit);
  const double of_hidden = 7.5 * root * rho;
  const double of_logit = 7.0 * root * gamma;
  const double of_score = 8.0 * root * (1.0 + rho) * (2.0 * groups + 6.0) * 2.0 * kUnit;
  const double of_mean = kDitherStep * root;
  const double rest = std::sqrt(groups) * (of_hidden + of_logit + of_score + of_mean);
  const double of_squares = 1.0 + groups * 4.0 * kUnit;  // v^2 is a sum in fp32 as well
  return {RoundedUp((kappa + rest) * of_squares), RoundedUp(hidden_norm)};
}

// The half width around `score`, bias included. The order of operations is part of the definition,
// so that every backend has the same intervals; square: v^2; error: ||E|| or 0. The last terms are
// the bias's two roundings, and those of these lines.
SLUICE_HD inline float HalfWidthOfRoot(float score, float root, float error,
                                       const StepBound& bound) {
  const float v = root + 0x1p-60f;
  const float width = semantics::Fma(v, bound.factor, error * bound.norm);
  return semantics::Fma(fabsf(score), 0x1p-20f, width * (1.0f + 0x1p-20f));
}
SLUICE_HD inline float HalfWidth(float score, float square, float error, const StepBound& bound) {
  return HalfWidthOfRoot(score, sqrtf(square), error, bound);
}

}  // namespace sluice
