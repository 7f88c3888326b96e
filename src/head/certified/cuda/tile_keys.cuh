// Ends of a row's tiles as order keys, and the k-th of them, by a block. 0 is no end.
#pragma once

#include "cuda/team.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

template <int kThreads>
class TileKeys {
 public:
  __device__ TileKeys(const float* ends, int tiles) : ends_(ends), tiles_(tiles) {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int place = static_cast<int>(threadIdx.x) + i * kThreads;
      keys_[i] = place < tiles ? semantics::OrderKey(ends[place]) : 0;
    }
  }
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) visit(keys_[i]);
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x) + kKeysOfThread * kThreads; place < tiles_;
         place += kThreads) {
      visit(semantics::OrderKey(ends_[place]));
    }
  }

 private:
  static constexpr int kKeysOfThread = 32;  // in registers; those of larger heads are read again

  const float* ends_;
  int tiles_;
  uint32_t keys_[kKeysOfThread];
};

template <int kThreads>
__device__ uint32_t LargestKey(const TileKeys<kThreads>& keys, const Team& block) {
  uint32_t most = 0;
  keys.ForEach([&](uint32_t key) { most = max(most, key); });
  return static_cast<uint32_t>(block.MaxOfBlock(uint64_t{most}));
}

// A key that at least k of them reach, and few more; 0 when fewer than k have one.
template <int kThreads>
__device__ uint32_t KeyOfRank(const TileKeys<kThreads>& keys, int k, const Team& block) {
  if (k <= kThreads / 2) {
    // By the threads' largest keys, to 2^-11 of it: as many reach it, and where threads have two of
    // the first k it lies lower than it could.
    constexpr int kLeastBit = 12;
    uint32_t mine = 0;
    keys.ForEach([&](uint32_t key) { mine = max(mine, key); });
    uint32_t of_rank = 0;
#pragma unroll 1
    for (int bit = 31; bit >= kLeastBit; --bit) {
      const uint32_t above = of_rank | 1u << bit;
      if (__syncthreads_count(mine >= above) >= k) of_rank = above;
    }
    return of_rank;
  }
  uint32_t high = LargestKey(keys, block);
  uint32_t low = 0;
#pragma unroll 1
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    uint32_t of_thread = 0;
    keys.ForEach([&](uint32_t key) { of_thread += key >= middle ? 1 : 0; });
    const auto count = static_cast<int>(block.SumOfBlock(uint64_t{of_thread}));
    if (count < k) {
      high = middle - 1;
      continue;
    }
    low = middle;
    if (count <= k + k / 16) break;
  }
  return low;
}

}  // namespace sluice::cuda
