// What the kernels of drafts share.
#pragma once

#include "pipeline/device_kernels.h"
#include "semantics/cut.h"
#include "semantics/draft.h"
#include "semantics/mask.h"
#include "semantics/order.h"

namespace sluice::cuda {

constexpr int kRejectThreads = 1024;
constexpr int kWarp = 32;

__device__ inline int Thread() { return static_cast<int>(threadIdx.x); }

__device__ inline TokenResult ResultOfStatus(RowStatus status) {
  TokenResult result;
  result.status = status;
  result.cut = semantics::CutOfStatus(status);
  return result;
}

__device__ inline uint64_t ProbabilityOf(const DraftLaw& law, int32_t id) {
  const float x = law.row[id];
  if (!law.cut.Keeps(x, id)) return 0;
  return static_cast<uint64_t>((law.reciprocal * semantics::Weight(x, law.max, law.scale)) >> 63);
}

// A stretch of a patched row, one id after the other.
class PatchedStretch {
 public:
  __device__ PatchedStretch(const RejectArgument& argument, int r, int32_t first)
      : row_(RowOf(argument, r)), patch_(PatchOf(argument, r)) {
    int32_t end = patch_.count;
    while (next_ < end) {  // the first id that is not below
      const int32_t middle = next_ + (end - next_) / 2;
      if (patch_.ids[middle] < first) {
        next_ = middle + 1;
      } else {
        end = middle;
      }
    }
  }

  // Of ids that ascend from the first one on, none left out.
  __device__ float operator()(int32_t id) {
    if (next_ < patch_.count && patch_.ids[next_] == id) return patch_.values[next_++];
    if (patch_.others_masked) return -INFINITY;
    if (patch_.allowed != nullptr && !semantics::BitmaskAllows(patch_.allowed, id)) {
      return -INFINITY;
    }
    return row_[id];
  }

 private:
  static __device__ semantics::Row RowOf(const RejectArgument& argument, int r) {
    const int32_t place = argument.rows[r].processed;
    if (place >= 0) {
      return {argument.processed + place * argument.processed_stride, DType::kF32, argument.vocab};
    }
    return {static_cast<const char*>(argument.logits) + r * argument.stride_bytes, argument.dtype,
            argument.vocab};
  }
  static __device__ RowPatch PatchOf(const RejectArgument& argument, int r) {
    return argument.rows[r].processed >= 0 ? RowPatch{} : argument.patches[r];
  }

  semantics::Row row_;
  RowPatch patch_;
  int32_t next_ = 0;
};

struct Sums {
  uint64_t before;  // of the threads before this one
  uint64_t all;
};
// By all threads.
__device__ inline Sums SumsOf(uint64_t value, uint64_t (&of_warp)[kRejectThreads / kWarp]) {
  const int lane = Thread() % kWarp, warp = Thread() / kWarp;
  uint64_t through = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, through, static_cast<unsigned>(step));
    if (lane >= step) through += other;
  }
  __syncthreads();
  if (lane == kWarp - 1) of_warp[warp] = through;
  __syncthreads();
  Sums sums{through - value, 0};
  for (int w = 0; w < kRejectThreads / kWarp; ++w) {
    if (w < warp) sums.before += of_warp[w];
    sums.all += of_warp[w];
  }
  return sums;
}

// The largest of all threads' values, none of which is a NaN.
__device__ inline float MaxOf(float max, uint64_t (&of_warp)[kRejectThreads / kWarp]) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
  }
  __syncthreads();
  if (Thread() % kWarp == 0) of_warp[Thread() / kWarp] = __float_as_uint(max);
  __syncthreads();
  for (int w = 0; w < kRejectThreads / kWarp; ++w) {
    max = fmaxf(max, __uint_as_float(static_cast<uint32_t>(of_warp[w])));
  }
  return max;
}

// The token that comes first in the total order, of the stretches of all threads; for thread 0.
__device__ inline int32_t FirstKept(PatchedStretch x_of, const Cut& rest, int32_t first,
                                    int32_t end, semantics::Token (&of_thread)[kRejectThreads]) {
  semantics::Token best{0.0f, -1};
  semantics::CutWalk walk(rest);
  for (int32_t id = first; id < end; ++id) {
    const semantics::Token token{x_of(id), id};
    if (walk.Keeps(token.x) && (best.id < 0 || semantics::Before(token, best))) best = token;
  }
  of_thread[Thread()] = best;
  __syncthreads();
  semantics::Token winner{0.0f, -1};
  if (Thread() == 0) {
    for (int t = 0; t < kRejectThreads; ++t) {
      const semantics::Token token = of_thread[t];
      if (token.id >= 0 && (winner.id < 0 || semantics::Before(token, winner))) winner = token;
    }
  }
  return winner.id;
}

// What a row would give if it stood.
__device__ inline TokenResult SampledAt(const VerdictArgument& argument, int32_t r, bool is_cdf,
                                        int32_t accepted) {
  TokenResult result;
  if (argument.results != nullptr) {
    const bool other = is_cdf && argument.cdf_results != nullptr && accepted < 0;
    result = other ? argument.cdf_results[r] : argument.results[r];
  } else {
    const bool other = is_cdf && argument.cdf_ids != nullptr;
    result.id = other ? argument.cdf_ids[r] : argument.ids[r];
    result.status = other ? argument.cdf_statuses[r] : argument.statuses[r];
  }
  return result;
}

}  // namespace sluice::cuda
