// Counting in bins by one block, and in which bin a rank falls.
#pragma once

#include "backend/team.cuh"

namespace sluice::cuda {

inline constexpr int kRankBins = 2048;

// In shared memory.
struct BinMemory {
  uint32_t count[kRankBins];
  uint32_t lowest[kMostWarps];
  uint32_t highest[kMostWarps];
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

// visit(add) calls add(bin) for what this thread has.
template <typename Visit>
__device__ RankBin FindRankBin(const Team& block, BinMemory& memory, uint32_t rank, Visit visit) {
  for (int i = block.thread(); i < kRankBins; i += block.threads()) memory.count[i] = 0;
  if (block.thread() == 0) memory.bin = -1;
  block.SyncBlock();
  visit([&](int bin) { atomicAdd(&memory.count[bin], 1u); });
  block.SyncBlock();
  // A thread has neighbouring bins, the first thread the largest ones.
  const int share = kRankBins / block.threads();
  const int first = kRankBins - 1 - block.thread() * share;
  uint32_t mine = 0;
#pragma unroll 1
  for (int i = 0; i < share; ++i) mine += memory.count[first - i];
  uint32_t above = static_cast<uint32_t>(block.SumBefore(uint64_t{mine}));
  if (above < rank && rank - above <= mine) {
    int bin = first;
    while (rank - above > memory.count[bin]) above += memory.count[bin--];
    memory.bin = bin;
    memory.above = above;
    memory.in_bin = memory.count[bin];
  }
  block.SyncBlock();
  return {memory.bin, memory.above, memory.in_bin};
}

// The least and the largest of what the threads of a block have; lowest > highest: nothing.
struct KeyRange {
  uint32_t lowest = ~0u;
  uint32_t highest = 0;

  __device__ void Add(uint32_t key) {
    lowest = min(lowest, key);
    highest = max(highest, key);
  }
};

__device__ inline KeyRange RangeOfBlock(const Team& block, BinMemory& memory,
                                        const KeyRange& mine) {
  const uint32_t lowest = __reduce_min_sync(~0u, mine.lowest);
  const uint32_t highest = __reduce_max_sync(~0u, mine.highest);
  block.SyncBlock();  // the memory may still be read
  if (block.lane() == 0) {
    memory.lowest[block.thread() / kWarpSize] = lowest;
    memory.highest[block.thread() / kWarpSize] = highest;
  }
  block.SyncBlock();
  const bool has = block.lane() < block.threads() / kWarpSize;
  return {__reduce_min_sync(~0u, has ? memory.lowest[block.lane()] : ~0u),
          __reduce_max_sync(~0u, has ? memory.highest[block.lane()] : 0)};
}

}  // namespace sluice::cuda
