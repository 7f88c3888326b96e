// A list of tokens that a team fills and its first block gets: bounded, and it says so when it is
// full. Who streams a row notes where there is something; when the row has passed, what was noted
// is looked at again, and the tokens that are wanted are listed.
#pragma once

#include "backend/vector_slice.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kMostProbes = 32;  // of a search among order keys: their bits
inline constexpr int kMassBins = 2 * kWarpSize;

// In shared memory.
template <int kCapacity>
struct BoundedList {
  static constexpr uint32_t kMostNoted = 2 * kCapacity;
  // Of more of them the tokens are loaded again, from L2 or beyond.
  static constexpr uint32_t kMostSaved = kCapacity < 2048 ? 128 : 512;

  union {
    int32_t noted[kMostNoted];             // of this block: the first ids of eights
    alignas(16) uint64_t room[kCapacity];  // for who sorts, when the tokens are listed
  };
  uint32_t noted_count;         // above the capacity: not all of them
  float4 saved[kMostSaved][2];  // the tokens of the first ones

  // Of the first block: from all of the team.
  alignas(16) uint64_t tokens[kCapacity];  // order key of the value, then the complement of the id
  uint32_t count;                          // above the capacity: not all of them
  uint32_t threshold;  // order key: every token of the row that reaches it is listed
  uint32_t is_spoilt;  // NaN or +inf was seen, or too much was noted
  uint32_t has_zero;   // whose sign its order key does not tell

  // Of who sorts.
  uint32_t pruned;  // tokens that are left
  uint32_t bin_mass[kMassBins];

  // Of a search among order keys.
  uint32_t guess;
  uint32_t least;
  uint32_t most;
  uint32_t counts[kMostProbes];

  // Behind a Sync, in the first block.
  __device__ bool IsComplete() const { return is_spoilt == 0 && count <= kCapacity; }
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
  if (place < BoundedList<kCapacity>::kMostSaved) {
    list.saved[place][0] = {tokens.x[0], tokens.x[1], tokens.x[2], tokens.x[3]};
    list.saved[place][1] = {tokens.x[4], tokens.x[5], tokens.x[6], tokens.x[7]};
  }
}

// To the list of the first block. A NaN or +inf spoils it.
template <int kCapacity>
__device__ void ListToken(BoundedList<kCapacity>& first, float x, int id) {
  if (!(x < INFINITY)) first.is_spoilt = 1;
  if (x == 0.0f) first.has_zero = 1;
  const uint32_t place = atomicAdd(&first.count, 1u);
  if (place < kCapacity) first.tokens[place] = KeyOfToken(x, id);
}

// Behind a barrier behind the last Note: lists the tokens of this block's eights for which
// is_wanted(x, id), in the first block; a Sync makes them visible there. Where it is false for +inf
// or NaN, the caller learns of them from the mass. threshold: of this block. Patches are for the
// caller to list.
template <DType kDType, bool kPatched, int kCapacity, typename IsWanted>
__device__ void ListNoted(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                          BoundedList<kCapacity>& list, uint32_t threshold, IsWanted is_wanted) {
  using Tokens = Eight<kDType>;
  constexpr uint32_t kMost = BoundedList<kCapacity>::kMostNoted;
  BoundedList<kCapacity>& first = *team.Of(0, &list);
  if (team.thread() == 0) {
    atomicMax(&first.threshold, threshold);
    if (list.noted_count > kMost) first.is_spoilt = 1;
  }
  const int noted = static_cast<int>(min(list.noted_count, kMost));
#pragma unroll 1
  for (int i = team.thread(); i < noted * Tokens::kTokens; i += team.threads()) {
    const int eight = i / Tokens::kTokens;
    const int id = Tokens::Id(list.noted[eight], i % Tokens::kTokens);
    if (id >= slice.vocab()) continue;
    const float x = eight < static_cast<int>(BoundedList<kCapacity>::kMostSaved)
                        ? reinterpret_cast<const float*>(list.saved)[i]
                        : slice.ValueOf(id);
    if (is_wanted(x, id) && !slice.IsPatched(id)) ListToken(first, x, id);
  }
}

// Before the first Note, with a Sync of the team or StartRow behind it before the first ListNoted.
template <int kCapacity>
__device__ void Clear(const Team& team, BoundedList<kCapacity>& list) {
  if (team.thread() == 0) {
    list.noted_count = list.count = list.threshold = list.most = 0;
    list.is_spoilt = list.has_zero = 0;
    list.least = ~0u;
  }
}

}  // namespace sluice::cuda
