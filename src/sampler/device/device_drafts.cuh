// What the kernels of drafts share.
#pragma once

#include "sampler/device/device_kernels.h"
#include "semantics/adjust/mask.h"
#include "semantics/cut.h"
#include "semantics/draw/draft.h"
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

// semantics::Probability40 with the division done once.
__device__ inline semantics::uint128_t ReciprocalOf(uint64_t mass) {
  return mass == 0 ? 0 : (static_cast<semantics::uint128_t>(1) << 103) / mass;
}
__device__ inline uint64_t Probability(semantics::uint128_t reciprocal, uint64_t weight) {
  return static_cast<uint64_t>((reciprocal * weight) >> 63);
}

__device__ inline uint64_t ProbabilityOf(const DraftDistribution& distribution, int32_t id) {
  const float x = distribution.row[id];
  if (!distribution.cut.Keeps(x, id)) return 0;
  return Probability(distribution.reciprocal,
                     semantics::Weight(x, distribution.max, distribution.scale));
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

// The rest of a Cut's ties for the stretch of this thread, which has these numbers of tokens at the
// boundaries. By all threads, with stretches that follow each other.
__device__ inline Cut RestOf(Cut cut, uint32_t at_upper, uint32_t at_lower,
                             uint64_t (&of_warp)[kRejectThreads / kWarp]) {
  const uint64_t before = SumsOf(uint64_t{at_upper} << 32 | at_lower, of_warp).before;
  cut.ties_dropped -= static_cast<int32_t>(before >> 32);
  cut.ties_kept -= static_cast<int32_t>(before & 0xffffffffu);
  return cut;
}

// What a row keeps, for passes that repeat: each thread has a stretch of ids to itself, so that
// what it counts and adds up comes in the order of ids.
class KeptStretch {
 public:
  // see(id): for all ids of this thread, kept or not. By all threads.
  template <typename See>
  __device__ KeptStretch(const RejectArgument& argument, int r, const Cut& cut, float scale,
                         uint64_t (&of_warp)[kRejectThreads / kWarp], See see)
      : argument_(argument), row_(r), scale_(scale) {
    const int32_t share = (argument.vocab + kRejectThreads - 1) / kRejectThreads;
    first_ = min(Thread() * share, argument.vocab);
    end_ = min(first_ + share, argument.vocab);
    float max = -INFINITY;
    uint32_t at_upper = 0, at_lower = 0;
    PatchedStretch x_of(argument, r, first_);
    for (int32_t id = first_; id < end_; ++id) {
      const float x = x_of(id);
      max = x > max ? x : max;
      at_upper += x == cut.upper ? 1 : 0;
      at_lower += x == cut.lower ? 1 : 0;
      see(id);
    }
    rest_ = RestOf(cut, at_upper, at_lower, of_warp);
    max_ = MaxOf(max, of_warp);
  }

  // visit(id, weight) for the kept tokens of this thread.
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
    ForEachValue([&](float x, int32_t id) { visit(id, semantics::Weight(x, max_, scale_)); });
  }

  // The first id at which the running sum of mass_of(id, weight) is above the threshold, which lies
  // in the stretch of this thread; `before`: the sum of the stretches before it.
  template <typename MassOf>
  __device__ int32_t IdAbove(uint64_t threshold, uint64_t before, MassOf mass_of) const {
    uint64_t running = before;
    int32_t token = -1;
    ForEach([&](int32_t id, uint64_t weight) {
      running += mass_of(id, weight);
      if (token < 0 && running > threshold) token = id;
    });
    return token;
  }

  // The token that comes first in the total order, of all threads' stretches; for thread 0. By all
  // threads.
  __device__ int32_t First(semantics::Token (&of_thread)[kRejectThreads]) const {
    semantics::Token best{0.0f, -1};
    auto see = [](semantics::Token& first, const semantics::Token& token) {
      if (token.id >= 0 && (first.id < 0 || semantics::Before(token, first))) first = token;
    };
    ForEachValue([&](float x, int32_t id) { see(best, {x, id}); });
    of_thread[Thread()] = best;
    __syncthreads();
    if (Thread() == 0) {
      for (const semantics::Token& token : of_thread) see(best, token);
    }
    return best.id;
  }

 private:
  template <typename Visit>
  __device__ void ForEachValue(Visit visit) const {
    PatchedStretch x_of(argument_, row_, first_);
    semantics::CutWalk walk(rest_);
    for (int32_t id = first_; id < end_; ++id) {
      const float x = x_of(id);
      if (walk.Keeps(x)) visit(x, id);
    }
  }

  const RejectArgument& argument_;
  int row_;
  float scale_;
  float max_;
  int32_t first_;
  int32_t end_;
  Cut rest_;
};

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
