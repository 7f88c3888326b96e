// A sample of a row from all over it, by one block, in its shared memory: where the first vectors
// of a team's warps, with which a row starts, said too little or the wrong thing. It is for guesses
// alone.
#pragma once

#include "backend/token_list.cuh"

namespace sluice::cuda {

inline constexpr int kSampled = 3072;
static_assert(kSampled <= kListCapacity);

// As the row is masked; what patches make of it is left out. An eight of neighbours from each part
// of the row, at a place of chance; 0: no token. Returns the share of the row; 1: all of it. A
// barrier is for the caller.
template <DType kDType, bool kPatched>
__device__ float SampleRow(const Team& block, const VectorSlice<kDType, kPatched>& slice,
                           uint64_t (&tokens)[kListCapacity]) {
  constexpr int kInARow = 8;
  constexpr uint32_t kParts = kSampled / kInARow;
  const uint32_t eights = static_cast<uint32_t>(slice.vocab() + kInARow - 1) / kInARow;
#pragma unroll 3
  for (int i = block.thread(); i < kSampled; i += block.threads()) {
    const uint32_t part = static_cast<uint32_t>(i / kInARow);
    // No vocabulary has so many eights that 32 bits do not hold the product.
    const uint32_t begin = part * eights / kParts;
    const uint32_t width = (part + 1) * eights / kParts - begin;
    const uint32_t eight = begin + (width > 1 ? (part * 0x9e3779b9u >> 12) % width : 0);
    const int id = static_cast<int>(eight) * kInARow + i % kInARow;
    tokens[i] = width > 0 && id < slice.vocab() ? KeyOfToken(slice.ValueOf(id), id) : 0;
  }
  return eights <= kParts ? 1.0f : static_cast<float>(kParts) / static_cast<float>(eights);
}

}  // namespace sluice::cuda
