// A row in the order of ids: every warp of a team has a stretch of it, read 32 neighbours at a
// time, so the finds of a warp follow those of the warps before it. And a patched row as what
// RowSlice is of others.
#pragma once

#include "cuda/row_patch.cuh"
#include "cuda/row_slice.cuh"

namespace sluice::cuda {

template <DType kDType, bool kPatched = false>
class IdOrderedSlice {
 public:
  using Element = typename ElementOf<kDType>::Type;

  __device__ IdOrderedSlice(const Team& team, const void* row, int vocab,
                            const PatchIf<kPatched>& patch = {})
      : row_(static_cast<const Element*>(row)), vocab_(vocab), lane_(team.lane()), patch_(patch) {
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
    [[maybe_unused]] PatchCursor cursor;
#pragma unroll 1
    for (int start = first_; start < end_; start += steps_a_part_, part <<= 1) {
      if ((parts & part) == 0) continue;
      const int end = min(start + steps_a_part_, end_);
      if constexpr (kPatched) {
        cursor = patch_.Seek(start * kWarpSize, min(end * kWarpSize, vocab_));
      }
#pragma unroll 1
      for (int step = start; step < end; step += kAtOnce) {
        float x[kAtOnce];
        [[maybe_unused]] uint32_t words[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          x[i] = step + i < end && IdOf(step + i) < vocab_ ? Widen<kDType>(row_[IdOf(step + i)])
                                                           : -INFINITY;
          if constexpr (kPatched) words[i] = patch_.MaskWord(step + i);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if constexpr (kPatched) {
            x[i] = patch_.Apply(x[i], (step + i) * kWarpSize, min(end * kWarpSize, vocab_),
                                words[i], cursor);
          }
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
  [[no_unique_address]] PatchIf<kPatched> patch_;
};

// A thread's part of a patched row: in every step of 32 neighbours of a warp's stretch, one.
template <DType kDType>
class PatchedRowSlice {
 public:
  using Element = typename ElementOf<kDType>::Type;

  __device__ PatchedRowSlice(const Team& team, const void* row, int vocab, const PatchOfRow& patch)
      : row_(static_cast<const Element*>(row)), lane_(team.lane()), patch_(patch) {
    const int warps = team.threads() / kWarpSize;
    const int warp = team.rank() * warps + team.thread() / kWarpSize;
    const int64_t steps = (vocab + kWarpSize - 1) / kWarpSize;
    const int all_warps = warps * team.blocks();
    first_ = static_cast<int>(steps * warp / all_warps) * kWarpSize;
    end_ = min(static_cast<int>(steps * (warp + 1) / all_warps) * kWarpSize, vocab);
  }

  __device__ float ValueOf(int id) const { return patch_.ValueOf(id, Widen<kDType>(row_[id])); }

  // visit(x, id) for the tokens of this thread, the lanes of a warp together.
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
    PatchCursor cursor = patch_.Seek(first_, end_);
    uint32_t words = 0;  // of the mask, one a lane
    Element now = Load(first_), next = Load(first_ + kWarpSize);
    Element last = Load(first_ + 2 * kWarpSize);
#pragma unroll 1
    for (int first = first_; first < end_; first += kWarpSize) {
      const int step = (first - first_) / kWarpSize % kWarpSize;
      if (step == 0) words = patch_.MaskWord(first / 32 + lane_);
      const float logit = Widen<kDType>(now);
      now = next;
      next = last;
      last = Load(first + 3 * kWarpSize);
      const float x = patch_.Apply(logit, first, end_, __shfl_sync(~0u, words, step), cursor);
      if (first + lane_ < end_) visit(x, first + lane_);
    }
  }

 private:
  // The element of this lane, among 32 from an id on.
  __device__ Element Load(int first) const {
    return first + lane_ < end_ ? row_[first + lane_] : Element{};
  }

  const Element* row_;
  int lane_;
  int first_;  // ids of this warp
  int end_;
  PatchOfRow patch_;
};

}  // namespace sluice::cuda
