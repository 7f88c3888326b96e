// A row in the order of ids: every warp of a team has a stretch of it, read 32 neighbours at a
// time, so what a warp finds goes behind what the warps before it found.
#pragma once

#include "backend/row_slice.cuh"

namespace sluice::cuda {

template <DType kDType>
class WarpStretch {
 public:
  using Element = typename ElementOf<kDType>::Type;

  __device__ WarpStretch(const Team& team, const void* row, int vocab)
      : row_(static_cast<const Element*>(row)), vocab_(vocab), lane_(team.lane()) {
    const int warps = team.threads() / kWarpSize;
    const int warp = team.rank() * warps + team.thread() / kWarpSize;
    const int64_t steps = (vocab + kWarpSize - 1) / kWarpSize;
    const int all_warps = warps * team.blocks();
    first_ = static_cast<int>(steps * warp / all_warps);
    end_ = static_cast<int>(steps * (warp + 1) / all_warps);
    const int part = (end_ - first_ + kParts - 1) / kParts;
    steps_a_part_ = max(1, (part + kAtOnce - 1) / kAtOnce) * kAtOnce;
  }

  // A bit for each part of the stretch.
  static constexpr uint32_t kAllParts = ~0u;

  // visit(x, id, part) for the tokens of these parts in the order of ids, by all lanes of the warp;
  // those that have no token get -inf and the id -1.
  template <typename Visit>
  __device__ void ForEachIn(uint32_t parts, Visit visit) const {
    uint32_t part = 1;
#pragma unroll 1
    for (int start = first_; start < end_; start += steps_a_part_, part <<= 1) {
      if ((parts & part) == 0) continue;
      const int end = min(start + steps_a_part_, end_);
#pragma unroll 1
      for (int step = start; step < end; step += kAtOnce) {
        float x[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          x[i] = step + i < end && IdOf(step + i) < vocab_ ? Widen<kDType>(row_[IdOf(step + i)])
                                                           : -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          visit(x[i], step + i < end && IdOf(step + i) < vocab_ ? IdOf(step + i) : -1, part);
        }
      }
    }
  }

 private:
  static constexpr int kParts = 32;
  static constexpr int kAtOnce = 8;

  __device__ int IdOf(int step) const { return step * kWarpSize + lane_; }

  const Element* row_;
  int vocab_;
  int lane_;
  int first_;  // steps of this warp
  int end_;
  int steps_a_part_;
};

}  // namespace sluice::cuda
