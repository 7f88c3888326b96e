// What the kernels of a certified call share.
#pragma once

#include <cuda_runtime.h>

#include "cuda/ptx.cuh"
#include "cuda/team.cuh"
#include "head/certified/cuda/certified_kernels.h"
#include "semantics/adjust/mask.h"
#include "semantics/order.h"

namespace sluice::cuda {

__device__ inline bool IsMasked(const CertifiedArgs& call, int row, int id) {
  if (call.bitmask == nullptr) return false;
  const int64_t words = (call.planes.vocab + 31) / 32;
  return !semantics::BitmaskAllows(call.bitmask + row * words, id);
}

// The most tokens that a row needs where top-p decides: a nucleus is seldom larger, and more tokens
// take longer. Of a small head one in 256 tokens, because some ten times as many survive.
inline constexpr int kMostNucleus = 224;

// Whether the logits of the tokens that are reached for certain are computed before it is known
// which others are.
__device__ inline bool ComputesSureTokensFirst(const RowProgress& progress) {
  return progress.k > 1 || progress.is_nucleus || progress.filter_class == FilterClass::kLikely;
}

// Too many tokens may matter to be computed one by one. Call it after the computation.
__device__ inline bool HasTooMany(const CertifiedArgs& call, const RowProgress& progress) {
  return progress.listed > call.memory.budget;
}

// The row is left to the dense head. By one thread.
__device__ inline void LeaveToDense(RowProgress& progress, DenseReason reason) {
  progress.way = RowProgress::Way::kDense;
  progress.reason = reason;
}

// How far scores of a draw from the whole softmax may be from bounds that were computed in another
// way: by roundings relative to the score, and by those of the smaller numbers in it.
__device__ inline float SurelyBelow(float score) {
  return score - (0.01f + fabsf(score) * 0x1p-20f);
}

// What the exact logits reach that may be among the first k. Call it after the computation.
__device__ inline float LeastOfFirstK(const RowProgress& progress) {
  const bool is_known = progress.filter_class == FilterClass::kFirst && progress.first > 0;
  return is_known ? semantics::ValueOfKey(progress.least_first) : -INFINITY;
}

// What was computed of a row, in the form in which draws take it. Call it after the computation of
// a row without too many.
__device__ inline CertifiedTokens TokensOf(const CertifiedArgs& call, int row) {
  const RowProgress& progress = call.memory.progress[row];
  const semantics::Token* const survivors =
      call.memory.survivors + int64_t{row} * call.memory.budget;
  return {survivors, progress.listed, LeastOfFirstK(progress)};
}

// What is wrong with a row that the planes or a mask answer. Call it after the computation.
__device__ inline RowStatus StatusOf(const RowProgress& progress) {
  if (progress.way == RowProgress::Way::kAnswered) return progress.status;
  if (progress.has_nan != 0) return RowStatus::kNanInput;
  if (progress.has_pos_inf != 0) return RowStatus::kPosInfInput;
  return progress.has_finite == 0 ? RowStatus::kEmptySupport : RowStatus::kOk;
}

// By one thread of the block that answers a row; a row left to the dense head joins its list.
__device__ inline void Report(const CertifiedArgs& call, int row) {
  const RowProgress& progress = call.memory.progress[row];
  const bool is_dense = progress.way == RowProgress::Way::kDense;
  if (is_dense) call.memory.dense_rows[atomicAdd(&call.memory.counters->dense, 1)] = row;
  if (call.refined != nullptr) {
    call.refined[row] = call.memory.probed == nullptr ? 0 : call.memory.probed[row].refined;
  }
  if (call.rows == nullptr) return;
  HeadRow report;
  report.path = is_dense                                     ? CertifiedPath::kDense
                : progress.way == RowProgress::Way::kPlanes  ? CertifiedPath::kPlanes
                : progress.way == RowProgress::Way::kAllowed ? CertifiedPath::kAllowed
                                                             : CertifiedPath::kNothing;
  report.reason = progress.reason;
  report.survivors = progress.listed;
  call.rows[row] = report;
}

}  // namespace sluice::cuda
