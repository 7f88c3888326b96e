// What tokens of a row must reach to matter, and how far an interval lets them reach.
#pragma once

#include "head/certified/cuda/row_progress.cuh"
#include "semantics/draw/noise.h"
#include "semantics/filters/min_p.h"

namespace sluice::cuda {

inline constexpr float kMostNoise = 50.0f;

// A token's interval; of one that was computed, or is masked, none.
struct Ends {
  bool is_open;
  float lower;
  float upper;
};

__device__ inline Ends EndsOf(float score, float width) {
  const bool is_finite = width < INFINITY;
  return {width != 0.0f, is_finite ? score - width : -INFINITY,
          is_finite ? score + width : INFINITY};
}

__device__ inline float NoiseOf(const RowProgress& progress, int32_t id) {
  return semantics::Gumbel(semantics::NoiseBits(progress.key, semantics::GumbelStream(progress.key),
                                                progress.first_id + id));
}

// A key of -inf that has lost its last bits would be a NaN's.
__device__ inline float ValueOfEnd(uint32_t key) {
  return key <= semantics::OrderKey(-INFINITY) ? -INFINITY : semantics::ValueOfKey(key);
}

// What the logits and scores of tokens that may matter reach.
struct Threshold {
  float least = -INFINITY;
  float best = INFINITY;  // of scores of a draw; none
};

// What the others must reach, when the tokens that the row needs reach `sure`.
__device__ inline Threshold NearThreshold(const RowProgress& progress, Threshold sure) {
  if (progress.filter_class == FilterClass::kFirst) return {sure.least};
  if (progress.filter_class == FilterClass::kLikely) {
    // The threshold never falls as the maximum rises, which is at least that.
    return {semantics::MinPThreshold(progress.min_p, sure.least, progress.filter_scale)};
  }
  return {sure.least, SurelyBelow(sure.best)};
}

}  // namespace sluice::cuda
