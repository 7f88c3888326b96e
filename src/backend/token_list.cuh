// A list of tokens that a team fills and its first block gets: bounded, and it says so when it is
// full. Who streams a row notes where there is something; when the row has passed, what was noted
// is looked at again, and the tokens that are wanted are listed.
#pragma once

#include "backend/vector_slice.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kMostProbes = 32;  // of a search among order keys: their bits

// In shared memory.
template <int kCapacity>
struct BoundedList {
  static constexpr uint32_t kMostNoted = 2 * kCapacity;

  uint64_t key[kCapacity];  // order key of the value, then the complement of the id
  union {
    int32_t noted[kMostNoted];   // the first ids of eights
    uint64_t sorted[kCapacity];  // of the first block: the keys of the whole team
  };
  uint32_t noted_count;        // above the capacity: not all of them
  uint32_t count;              // the same
  uint32_t gathered;           // of the first block: keys of the whole team
  uint32_t threshold;          // order key: what lies below is not listed
  uint32_t is_spoilt;          // NaN or +inf was seen, or too much was noted
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

// Tokens in a list, as the slice of a row.
class TokenSlice {
 public:
  __device__ TokenSlice(const Team& block, const uint64_t* tokens, int size)
      : tokens_(tokens), size_(size), first_(block.thread()), step_(block.threads()) {}

  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll 1
    for (int i = first_; i < size_; i += step_) visit(ValueOf(tokens_[i]), IdOf(tokens_[i]));
  }

 private:
  const uint64_t* tokens_;
  int size_;
  int first_;
  int step_;
};

// While a row streams by: there is something among eight tokens. Few instructions, because the
// loads of the warp wait for them (listing the tokens themselves here took 1000 cycles).
template <DType kDType, int kCapacity>
__device__ void Note(BoundedList<kCapacity>& list, const Eight<kDType>& tokens) {
  const uint32_t place = atomicAdd(&list.noted_count, 1u);
  if (place < BoundedList<kCapacity>::kMostNoted) list.noted[place] = tokens.first;
}

// Behind a barrier behind the last Note: lists the tokens of this block's eights for which
// is_wanted(x, id), which is true for +inf and NaN. They are visible behind a barrier.
template <DType kDType, int kCapacity, typename IsWanted>
__device__ void ListNoted(const Team& block, const VectorSlice<kDType>& slice,
                          BoundedList<kCapacity>& list, IsWanted is_wanted) {
  using Tokens = Eight<kDType>;
  const int noted = static_cast<int>(min(list.noted_count, BoundedList<kCapacity>::kMostNoted));
  if (list.noted_count > BoundedList<kCapacity>::kMostNoted) list.is_spoilt = 1;
#pragma unroll 1
  for (int i = block.thread(); i < noted * Tokens::kTokens; i += block.threads()) {
    const int id = Tokens::Id(list.noted[i / Tokens::kTokens], i % Tokens::kTokens);
    if (id >= slice.vocab()) continue;
    const float x = slice.ValueOf(id);
    if (!is_wanted(x, id)) continue;
    if (!(x < INFINITY)) list.is_spoilt = 1;
    const uint32_t place = atomicAdd(&list.count, 1u);
    if (place < kCapacity) list.key[place] = KeyOfToken(x, id);
  }
}

// Before the first Note, with a barrier behind it.
template <int kCapacity>
__device__ void Clear(const Team& team, BoundedList<kCapacity>& list) {
  if (team.thread() == 0) {
    list.noted_count = list.count = list.gathered = 0;
    list.is_spoilt = list.most = list.threshold = 0;
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
    is_bad = other.is_spoilt != 0 || count > kCapacity;
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
