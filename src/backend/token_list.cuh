// A list of tokens that a team fills and its first block gets: bounded, and it says so when it is
// full.
#pragma once

#include "backend/team.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kMostProbes = 32;  // of a search among order keys: their bits

// In shared memory.
template <int kCapacity>
struct BoundedList {
  uint64_t key[kCapacity];     // order key of the value, then the complement of the id
  uint64_t sorted[kCapacity];  // of the first block: the keys of the whole team
  uint32_t count;              // at the capacity or above: not all of them
  uint32_t gathered;           // of the first block: keys of the whole team
  uint32_t threshold;          // order key: what lies below is not listed
  uint32_t is_spoilt;          // NaN or +inf was seen
  uint32_t least;              // of what is being searched: order keys
  uint32_t most;
  uint32_t counts[kMostProbes];
};
inline constexpr int kListCapacity = 3072;
using TokenList = BoundedList<kListCapacity>;

__device__ inline uint64_t KeyOfToken(float x, int id) {
  return static_cast<uint64_t>(semantics::OrderKey(x)) << 32 | ~static_cast<uint32_t>(id);
}
__device__ inline float ValueOf(uint64_t key) {
  return semantics::ValueOfKey(static_cast<uint32_t>(key >> 32));
}
__device__ inline int32_t IdOf(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

template <int kCapacity>
__device__ void Push(BoundedList<kCapacity>& list, float x, int id) {
  if (LoadShared(&list.count) >= kCapacity) return;
  const uint32_t place = atomicAdd(&list.count, 1u);
  if (place < kCapacity) list.key[place] = KeyOfToken(x, id);
}

// Before the first Push, with a barrier behind it.
template <int kCapacity>
__device__ void Clear(const Team& team, BoundedList<kCapacity>& list) {
  if (team.thread() == 0) {
    list.count = list.gathered = list.is_spoilt = list.most = list.threshold = 0;
    list.least = ~0u;
  }
}

// What the first block gets of the lists of all blocks.
struct PulledLists {
  int size;            // of `sorted`; negative: something is missing or spoilt
  uint32_t threshold;  // order key: every token of the team that reaches it is there
};

// Behind a Sync: the first block gets in `sorted` the tokens of all blocks that reach the largest
// of their thresholds. The others get nothing, when their lists have been read.
template <int kCapacity>
__device__ PulledLists PullLists(const Team& team, BoundedList<kCapacity>& list) {
  using List = BoundedList<kCapacity>;
  if (team.rank() != 0) {
    team.ArriveAtBlocks();
    team.AwaitBlocks();
    return {0, 0};
  }
  // A block a lane.
  uint32_t count = 0, threshold = 0;
  bool is_bad = false;
  if (team.lane() < team.blocks()) {
    const List& other = *team.Of(team.lane(), &list);
    count = other.count;
    threshold = other.threshold;
    is_bad = other.is_spoilt != 0 || count >= kCapacity;
  }
  is_bad = __any_sync(~0u, is_bad);
  const uint32_t largest = __reduce_max_sync(~0u, threshold);
  if (!is_bad) {
    // Lists follow each other over the threads, so that all are read at once.
    uint32_t begins[kMostBlocks];
    uint32_t total = 0;
#pragma unroll
    for (int r = 0; r < kMostBlocks; ++r) {
      begins[r] = total;
      total += __shfl_sync(~0u, count, r);
    }
#pragma unroll 1
    for (uint32_t i = static_cast<uint32_t>(team.thread()); i < total;
         i += static_cast<uint32_t>(team.threads())) {
      int block = 0;
      uint32_t begin = 0;
#pragma unroll
      for (int r = 1; r < kMostBlocks; ++r) {
        if (r < team.blocks() && i >= begins[r]) {
          block = r;
          begin = begins[r];
        }
      }
      const uint64_t key = team.Of(block, list.key)[i - begin];
      if (static_cast<uint32_t>(key >> 32) < largest) continue;
      const uint32_t place = atomicAdd(&list.gathered, 1u);
      if (place < kCapacity) list.sorted[place] = key;
    }
  }
  team.ArriveAtBlocks();
  team.SyncBlock();
  const uint32_t gathered = list.gathered;
  team.AwaitBlocks();
  return {is_bad || gathered > kCapacity ? -1 : static_cast<int>(gathered), largest};
}

}  // namespace sluice::cuda
