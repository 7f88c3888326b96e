// A list of tokens that a team fills and its first block gets: bounded, and it says so when it is
// full.
#pragma once

#include "backend/team.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kListCapacity = 3072;

// In shared memory.
struct TokenList {
  uint64_t key[kListCapacity];     // order key of the value, then the complement of the id
  uint64_t sorted[kListCapacity];  // of the first block: the keys of the whole team
  uint32_t count;                  // at the capacity or above: not all of them
  uint32_t gathered;               // of the first block: keys of the whole team
  uint32_t threshold;              // order key
  uint32_t is_spoilt;              // NaN or +inf was seen
  uint32_t least;                  // of what is being searched: order keys, or bins
  uint32_t most;
  uint32_t band_first;  // of a nucleus: bins
  uint32_t band_last;
};

__device__ inline uint64_t KeyOfToken(float x, int id) {
  return static_cast<uint64_t>(semantics::OrderKey(x)) << 32 | ~static_cast<uint32_t>(id);
}
__device__ inline float ValueOf(uint64_t key) {
  return semantics::ValueOfKey(static_cast<uint32_t>(key >> 32));
}
__device__ inline int32_t IdOf(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

__device__ inline void Push(TokenList& list, float x, int id) {
  if (LoadShared(&list.count) >= kListCapacity) return;
  const uint32_t place = atomicAdd(&list.count, 1u);
  if (place < kListCapacity) list.key[place] = KeyOfToken(x, id);
}

// Behind a Sync: the listed tokens of the team whose order keys reach `least` go to the first
// block's `sorted`. The number of them, or -1 when something is missing or spoilt.
__device__ inline int Gather(const Team& team, TokenList& list, uint32_t least) {
  const bool is_bad = team.ReduceBlocks(
                          0,
                          [&](int r) {
                            const TokenList& other = *team.Of(r, &list);
                            return other.is_spoilt != 0 || other.count >= kListCapacity ? 1 : 0;
                          },
                          [](int a, int b) { return a | b; }) != 0;
  TokenList& first = *team.Of(0, &list);
  if (!is_bad) {
    for (uint32_t i = static_cast<uint32_t>(team.thread()); i < list.count;
         i += static_cast<uint32_t>(team.threads())) {
      if (list.key[i] >> 32 < least) continue;
      const uint32_t place = atomicAdd(&first.gathered, 1u);
      if (place < kListCapacity) first.sorted[place] = list.key[i];
    }
  }
  team.Sync();
  const uint32_t gathered = first.gathered;
  if (team.blocks() > 1) team.Sync();  // the first block may leave before others have read
  return is_bad || gathered > kListCapacity ? -1 : static_cast<int>(gathered);
}

// Before the first Push, with a barrier behind it.
__device__ inline void Clear(const Team& team, TokenList& list) {
  if (team.thread() == 0) {
    list.count = list.gathered = list.is_spoilt = list.most = 0;
    list.least = ~0u;
  }
}

}  // namespace sluice::cuda
