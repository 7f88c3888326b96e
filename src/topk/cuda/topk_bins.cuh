// Counting in bins by one block, and in which bin a rank falls.
#pragma once

#include "cuda/team.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kRankBins = 2048;

// log2 of a power of two, and n / 2^shift rounded up: cheaper than to divide.
__device__ inline int ShiftOf(int power) { return 31 - __clz(power); }
__device__ inline int ShareOf(int n, int shift) { return (n + (1 << shift) - 1) >> shift; }

// The least and the largest key of some; lowest > highest: there is none.
struct KeyRange {
  uint32_t lowest = ~0u;
  uint32_t highest = 0;

  __device__ void Add(uint32_t key) {
    lowest = min(lowest, key);
    highest = max(highest, key);
  }
  __device__ bool IsKnown() const { return lowest <= highest; }
  // For scores that were given as order keys.
  __device__ bool HasNan() const {
    return lowest < semantics::OrderKey(-INFINITY) || highest > semantics::OrderKey(INFINITY);
  }
  __device__ bool IsFinite() const {
    return lowest > semantics::OrderKey(-INFINITY) && highest < semantics::OrderKey(INFINITY);
  }
};

// Sums and ranges over a block's threads, in 32 bits and with one SyncBlock each, which is one for
// the caller as well: half the time of Team's. Between two of these objects: a SyncBlock.
struct ScanMemory {
  uint2 of_warp[2][kMostWarps];  // by turns, so that no writer waits for readers
};

class BlockScan {
 public:
  __device__ BlockScan(Team block, ScanMemory& memory) : block_(block), memory_(memory) {}

  struct Sums {
    uint32_t before;  // of the threads before this one
    uint32_t all;
  };
  // In the order of threads.
  __device__ Sums Add(uint32_t value) {
    const uint32_t through = block_.SumThrough(value);
    const int warp = block_.thread() / kWarpSize;
    const uint32_t other = Exchange({through, 0}, kWarpSize - 1, {0, 0}).x;
    return {through - value + __reduce_add_sync(~0u, block_.lane() < warp ? other : 0),
            __reduce_add_sync(~0u, other)};
  }
  __device__ KeyRange Range(const KeyRange& mine) {
    const uint2 other = Exchange(
        {__reduce_min_sync(~0u, mine.lowest), __reduce_max_sync(~0u, mine.highest)}, 0, {~0u, 0});
    return {__reduce_min_sync(~0u, other.x), __reduce_max_sync(~0u, other.y)};
  }

 private:
  // Exchanges the value of a lane of each warp, a warp for each lane.
  __device__ uint2 Exchange(uint2 mine, int of_lane, uint2 none) {
    uint2* of_warp = memory_.of_warp[turn_];
    turn_ ^= 1;
    if (block_.lane() == of_lane) of_warp[block_.thread() / kWarpSize] = mine;
    block_.SyncBlock();
    return block_.lane() < block_.threads() / kWarpSize ? of_warp[block_.lane()] : none;
  }

  Team block_;
  ScanMemory& memory_;
  int turn_ = 0;
};

// Bins of equal width from one finite score to a larger one.
struct ScoreBins {
  __device__ ScoreBins(float low, float high) {
    half_low = 0.5f * low;
    scale = __fdividef(kRankBins - 1, 0.5f * high - half_low);
  }

  // The bin of any score but NaN; those outside are in the end bins. It never falls as x rises.
  __device__ int Of(float x) const {
    return min(max(static_cast<int>((0.5f * x - half_low) * scale), 0), kRankBins - 1);
  }
  // About the least score of a bin.
  __device__ float EdgeOf(int bin) const {
    return 2.0f * (half_low + __fdividef(static_cast<float>(bin), scale));
  }

  float half_low;  // halves, because the difference of two finite scores may be none
  float scale;
};

// In shared memory.
struct BinMemory {
  alignas(16) uint32_t count[kRankBins];
  int bin;
  uint32_t above;
  uint32_t in_bin;
};

// The bin of the rank-th largest, from 1 on; -1 when there are fewer.
struct RankBin {
  int bin;
  uint32_t above;  // in larger bins
  uint32_t in_bin;
};

// For the threads after the next SyncBlock.
__device__ inline void ZeroBins(const Team& block, BinMemory& memory) {
  for (int i = 4 * block.thread(); i < kRankBins; i += 4 * block.threads()) {
    *reinterpret_cast<uint4*>(memory.count + i) = {0, 0, 0, 0};
  }
  if (block.thread() == 0) memory.bin = -1;
}

// Finds a rank in bins that have been counted, by a block of 512 threads or 1024.
__device__ inline RankBin FindCounted(const Team& block, BlockScan& scan, BinMemory& memory,
                                      uint32_t rank) {
  // A thread has two or four neighbouring bins, the first thread the largest ones.
  const bool has_two = block.threads() == kRankBins / 2;
  const int first = kRankBins - (block.thread() + 1) * (has_two ? 2 : 4);
  uint32_t of_bin[4] = {};
  if (has_two) {
    const uint2 two = *reinterpret_cast<const uint2*>(memory.count + first);
    of_bin[2] = two.x;
    of_bin[3] = two.y;
  } else {
    const uint4 four = *reinterpret_cast<const uint4*>(memory.count + first);
    of_bin[0] = four.x;
    of_bin[1] = four.y;
    of_bin[2] = four.z;
    of_bin[3] = four.w;
  }
  uint32_t above = scan.Add(of_bin[0] + of_bin[1] + of_bin[2] + of_bin[3]).before;
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    if (above < rank && rank - above <= of_bin[i]) {
      memory.bin = first + i - (has_two ? 2 : 0);
      memory.above = above;
      memory.in_bin = of_bin[i];
    }
    above += of_bin[i];
  }
  block.SyncBlock();
  return {memory.bin, memory.above, memory.in_bin};
}

// visit(add) calls add(bin) for what this thread has. Bins that are zero, after a SyncBlock.
template <typename Visit>
__device__ RankBin FindInZeroBins(const Team& block, BlockScan& scan, BinMemory& memory,
                                  uint32_t rank, Visit visit) {
  visit([&](int bin) { atomicAdd(&memory.count[bin], 1u); });
  block.SyncBlock();
  return FindCounted(block, scan, memory, rank);
}

// As above for any bins, after a SyncBlock that follows the last search.
template <typename Visit>
__device__ RankBin FindRankBin(const Team& block, BlockScan& scan, BinMemory& memory, uint32_t rank,
                               Visit visit) {
  block.SyncBlock();
  ZeroBins(block, memory);
  block.SyncBlock();
  return FindInZeroBins(block, scan, memory, rank, visit);
}

}  // namespace sluice::cuda
