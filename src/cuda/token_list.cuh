// A list of tokens that a team fills and its first block gets: bounded, with a flag for a full
// list. While a row streams, threads note the positions of candidates; after the row, the noted
// positions are read again, and the chosen tokens are listed.
#pragma once

#include "cuda/vector_slice.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kMostProbes = 64;  // of a search among order keys: three for two bits are 48
inline constexpr int kMassBins = 2 * kWarpSize;

// In shared memory.
template <int kCapacity>
struct BoundedList {
  static constexpr uint32_t kMostNoted = 2 * kCapacity;
  // Beyond this many, tokens are loaded again, from L2 or beyond.
  static constexpr uint32_t kMostSaved = kCapacity < 2048 ? 128 : 384;

  union {
    int32_t noted[kMostNoted];             // of this block: the first ids of eights
    alignas(16) uint64_t room[kCapacity];  // for the filter of listed
                                           // tokens
  };
  uint32_t noted_count;         // above kMostNoted: not all of them
  float4 saved[kMostSaved][2];  // the tokens of the first ones

  // In the first block: from all of the team.
  alignas(16) uint64_t tokens[kCapacity];  // order key of the value, then the complement of the id
  uint32_t count;                          // above the capacity: not all of them
  uint32_t threshold;  // order key: every token of the row that reaches it is listed
  uint32_t is_spoilt;  // NaN or +inf was seen, or too much was noted
  uint32_t has_zero;   // a zero, which has a sign that its order key lacks

  // For the thread that prunes:
  uint32_t pruned;  // tokens that are left
  uint32_t bin_mass[kMassBins];

  // For a search among order keys:
  uint32_t guess;
  uint32_t least;
  uint32_t most;
  uint32_t counts[kMostProbes];

  // In a block that lists for the first one: where its tokens go.
  uint32_t place;

  // After a Sync, in the first block.
  __device__ bool IsComplete() const { return is_spoilt == 0 && count <= kCapacity; }
};
inline constexpr int kListCapacity = 3328;
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

// To the place of the first block's list that was taken for it. A NaN or +inf spoils the list.
template <int kCapacity>
__device__ void PutToken(BoundedList<kCapacity>& first, uint32_t place, float x, int id) {
  if (!(x < INFINITY)) first.is_spoilt = 1;
  if (x == 0.0f) first.has_zero = 1;
  if (place < kCapacity) first.tokens[place] = KeyOfToken(x, id);
}
template <int kCapacity>
__device__ void ListToken(BoundedList<kCapacity>& first, float x, int id) {
  PutToken(first, atomicAdd(&first.count, 1u), x, id);
}

// The tokens that lanes have marked, listed by a whole warp: it takes places at once.
template <int kCapacity>
__device__ void ListOfWarp(BoundedList<kCapacity>& list, bool is_kept, float x, int id) {
  const uint32_t lanes = __ballot_sync(~0u, is_kept);
  if (lanes == 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  uint32_t place = 0;
  if (lane == 0) place = atomicAdd(&list.count, static_cast<uint32_t>(__popc(lanes)));
  place = __shfl_sync(~0u, place, 0) + static_cast<uint32_t>(__popc(lanes & ((1u << lane) - 1)));
  if (is_kept) PutToken(list, place, x, id);
}

// Moves what a block has listed for itself to the list of the first block.
template <int kCapacity>
__device__ void SendList(const Team& team, BoundedList<kCapacity>& list,
                         BoundedList<kCapacity>& first) {
  team.SyncBlock();
  if (team.thread() == 0) {
    list.place = atomicAdd(&first.count, list.count);
    if (list.is_spoilt != 0) first.is_spoilt = 1;
    if (list.has_zero != 0) first.has_zero = 1;
  }
  team.SyncBlock();
  const uint32_t count = min(list.count, static_cast<uint32_t>(kCapacity));
  for (uint32_t i = threadIdx.x; i < count; i += static_cast<uint32_t>(team.threads())) {
    if (list.place + i < kCapacity) first.tokens[list.place + i] = list.tokens[i];
  }
}

// After a barrier that follows the last Note: lists the tokens of this block's eights for which
// keeps(x, id), in the first block; a Sync makes them visible there. Where it is false for +inf
// or NaN, the caller learns of them from the mass. threshold: of this block. Patches are for the
// caller to list.
template <DType kDType, bool kPatched, int kCapacity, typename Keeps>
__device__ void ListNoted(const Team& team, const VectorSlice<kDType, kPatched>& slice,
                          BoundedList<kCapacity>& list, uint32_t threshold, Keeps keeps) {
  using Tokens = Eight<kDType>;
  using List = BoundedList<kCapacity>;
  constexpr int kMostSavedTokens = List::kMostSaved * Tokens::kTokens;
  constexpr uint32_t kMostSent = 64;  // eights with tokens that go to the first block one by one
  constexpr int kLoadsAtOnce = 4;
  List& first = *team.Of(0, &list);
  const uint32_t noted = min(list.noted_count, List::kMostNoted);
  if (team.thread() == 0) {
    atomicMax(&first.threshold, threshold);
    if (list.noted_count > List::kMostNoted) first.is_spoilt = 1;
  }
  // Additions in another block's memory, one after the other, take longer than all else here.
  const bool lists_here = team.rank() != 0 && noted > kMostSent;
  List& target = lists_here ? list : first;
  const int tokens = static_cast<int>(noted) * Tokens::kTokens;
  const int saved = min(tokens, kMostSavedTokens);
  const int lane = team.lane();
  auto id_of = [&](int i, int end) {
    return i < end ? Tokens::Id(list.noted[i / Tokens::kTokens], i % Tokens::kTokens)
                   : slice.vocab();
  };
  auto list_one = [&](float x, int id) {
    const bool is_kept = id < slice.vocab() && keeps(x, id) && !slice.IsPatched(id);
    ListOfWarp(target, is_kept, x, id);
  };
  // Whole warps go on together.
#pragma unroll 1
  for (int i = team.thread(); i - lane < saved; i += team.threads()) {
    const int id = id_of(i, saved);
    list_one(i < saved ? reinterpret_cast<const float*>(list.saved)[i] : 0.0f, id);
  }
#pragma unroll 1
  for (int i = saved + team.thread(); i - lane < tokens; i += kLoadsAtOnce * team.threads()) {
    float x[kLoadsAtOnce];
    int id[kLoadsAtOnce];
#pragma unroll
    for (int j = 0; j < kLoadsAtOnce; ++j) {
      id[j] = id_of(i + j * team.threads(), tokens);
      x[j] = id[j] < slice.vocab() ? slice.ValueOf(id[j]) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kLoadsAtOnce; ++j) list_one(x[j], id[j]);
  }
  if (lists_here) SendList(team, list, first);
}

// Before the first Note, with a Sync of the team or StartRow between it and the first ListNoted.
template <int kCapacity>
__device__ void Clear(const Team& team, BoundedList<kCapacity>& list) {
  if (team.thread() == 0) {
    list.noted_count = list.count = list.threshold = list.most = 0;
    list.is_spoilt = list.has_zero = 0;
    list.least = ~0u;
  }
}

}  // namespace sluice::cuda
