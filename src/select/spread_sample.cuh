// A sample of a row from all over it, by one block: where the first vectors of a team's warps, with
// which a row starts, said too little or the wrong thing. It is for guesses alone.
#pragma once

#include "backend/vector_slice.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

// As the row is masked; what patches make of it is left out.
template <DType kDType, bool kPatched>
class SpreadSample {
 public:
  static constexpr int kTokens = 16;  // of a thread

  // An eight of neighbours from each part of the row, at a place of chance.
  __device__ SpreadSample(const Team& block, const VectorSlice<kDType, kPatched>& slice) {
    const uint32_t eights = static_cast<uint32_t>(slice.vocab() + kInARow - 1) / kInARow;
    const uint32_t parts = static_cast<uint32_t>(kRuns * block.threads());
    share_ = eights <= parts ? 1.0f : static_cast<float>(parts) / static_cast<float>(eights);
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const uint32_t part = static_cast<uint32_t>(run * block.threads() + block.thread());
      // No vocabulary has so many eights that 32 bits do not hold the product.
      const uint32_t begin = part * eights / parts;
      const uint32_t width = (part + 1) * eights / parts - begin;
      const uint32_t eight = begin + (width > 1 ? (part * 0x9e3779b9u >> 12) % width : 0);
      first_[run] = static_cast<int>(eight) * kInARow;
#pragma unroll
      for (int e = 0; e < kInARow; ++e) {
        const int id = first_[run] + e;
        keys_[run * kInARow + e] =
            width > 0 && id < slice.vocab() ? semantics::OrderKey(slice.ValueOf(id)) : 0;
      }
    }
  }

  // Of the row; 1: all of it.
  __device__ float share() const { return share_; }
  // Order keys; 0: no token.
  __device__ const uint32_t (&keys() const)[kTokens] { return keys_; }
  __device__ int Id(int token) const { return first_[token / kInARow] + token % kInARow; }

 private:
  static constexpr int kInARow = 8;
  static constexpr int kRuns = kTokens / kInARow;

  uint32_t keys_[kTokens];
  int first_[kRuns];
  float share_;
};

}  // namespace sluice::cuda
