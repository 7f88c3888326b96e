// Gumbel scores of kept tokens that come one by one, spread over a row: a warp collects them and
// scores 32 at a time. A token whose noise is bounded below the best score so far is not scored.
#pragma once

#include "draw/draw_row.cuh"

namespace sluice::cuda {

inline constexpr int kQueued = 2 * kWarpSize;

// In shared memory, one a warp.
struct ScoreQueue {
  float x[kQueued];
  int32_t id[kQueued];
};

// Whether a token with these high bits of noise may reach `floor`, a score that somebody has. With
// U >= h / 2^16, e = -log2(1 - U) >= h / (2^16 ln 2), so its score is at most t - log2(h / (2^16 ln
// 2)); a thousandth is left for every rounding. That is enough because whoever uses it scores the
// row's maximum as well: the winner's t is above -60.
__device__ inline bool MayReach(float t, uint32_t h, float floor) {
  const float limit = 65536.0f * 0.6931472f * 1.001f * exp2f(t - floor) + 1.0f;
  return !(static_cast<float>(h) > limit);  // true for a NaN
}

class KeptScorer {
 public:
  __device__ KeptScorer(ScoreQueue* queues, float scale, const NoiseKey& key)
      : queue_(queues[threadIdx.x / kWarpSize]), scale_(scale), key_(key) {}

  __device__ void Begin(float max) { max_ = max; }

  // By all lanes of a warp.
  __device__ void See(bool is_kept, float x, int id) {
    const uint32_t kept = __ballot_sync(~0u, is_kept);
    if (kept == 0) return;
    const int lane = static_cast<int>(threadIdx.x % kWarpSize);
    if (is_kept) {
      const int place = size_ + __popc(kept & ((1u << lane) - 1));
      queue_.x[place] = x;
      queue_.id[place] = id;
    }
    size_ += __popc(kept);
    if (size_ < kWarpSize) return;
    __syncwarp();
    size_ -= kWarpSize;
    Score(queue_.x[size_ + lane], queue_.id[size_ + lane]);
    floor_ = semantics::ValueOfKey(
        __reduce_max_sync(~0u, max(static_cast<uint32_t>(best_.score_and_value >> 32), kLeastKey)));
    __syncwarp();
  }

  // By any lane.
  __device__ void SeeAlone(float x, int id) { Score(x, id); }

  // Behind the last token; by all threads.
  __device__ const BestToken& Finish() {
    const int lane = static_cast<int>(threadIdx.x % kWarpSize);
    __syncwarp();
    if (lane < size_) Score(queue_.x[lane], queue_.id[lane]);
    size_ = 0;
    return best_;
  }

 private:
  static constexpr uint32_t kLeastKey = 0x007fffffu;  // of -inf

  __device__ void Score(float x, int32_t id) {
    const semantics::Stream stream = semantics::GumbelStream(key_);
    const float t = semantics::LogWeight(x, max_, scale_);
    const uint32_t high = semantics::NoiseHigh(key_, stream, id);
    if (!MayReach(t, high, floor_)) return;
    const uint64_t noise =
        static_cast<uint64_t>(high) << 32 | semantics::NoiseLow(key_, stream, id);
    best_.See(t + semantics::Gumbel(noise), x, id);
  }

  ScoreQueue& queue_;
  float scale_;
  const NoiseKey& key_;
  float max_ = 0.0f;
  float floor_ = -INFINITY;
  int size_ = 0;
  BestToken best_;
};

}  // namespace sluice::cuda
