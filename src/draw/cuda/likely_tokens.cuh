// The first tokens of a row in the total order, up to some hundred of them, of those between two
// values. A team reads the row twice: the largest values of 256 groups of threads give a threshold
// that enough tokens reach, and what reaches it is sorted. Where too much does (ties), the tokens
// are looked for one after the other, by a read of the row each.
#pragma once

#include "cuda/long_mass_sum.cuh"
#include "cuda/token_list.cuh"

namespace sluice::cuda {

inline constexpr int kLikelyGroups = 256;
inline constexpr int kMostLikely = 1024;  // that are sorted

// In shared memory.
struct LikelyMemory {
  // In the first block:
  uint32_t largest[kLikelyGroups];  // order keys; 0: nothing is in the range
  uint32_t threshold;
  uint32_t count;
  uint64_t tokens[kMostLikely];
};

// The listed tokens: the `wanted` first tokens with lower <= x <= upper, but for the first
// `dropped` of them, which equal `upper`; `kept` of them at most. -inf and NaN are in no range.
struct LikelyRange {
  float upper;
  float lower;  // above -inf
  int32_t dropped;
  int32_t kept;
  int32_t wanted;

  __device__ bool Has(float x) const { return x <= upper && x >= lower; }
};

// visit(x, id) for what this thread has of the row, in vectors or one by one.
template <typename Slice, typename Visit>
__device__ void ForEachToken(const Slice& slice, Visit visit) {
  slice.ForEach(visit);
}
template <DType kDType, typename Visit>
__device__ void ForEachToken(const VectorSlice<kDType>& slice, Visit visit) {
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Eight<kDType>& eight) {
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) {
      visit(eight.x[e], Eight<kDType>::Id(eight.first, e));
    }
  });
}

// One read of the row a token.
template <typename Slice, typename Put>
__device__ void ListOneByOne(const Team& team, const Slice& slice, int vocab,
                             const LikelyRange& range, Put put) {
  uint64_t before = ~uint64_t{0};
  if (range.dropped > 0) {  // after the last of them
    int low = 0, high = vocab - 1;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      uint32_t ties = 0;
      ForEachToken(slice,
                   [&](float x, int id) { ties += x == range.upper && id <= middle ? 1 : 0; });
      if (team.Sum(ties) >= static_cast<uint64_t>(range.dropped)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    before = KeyOfToken(range.upper, low);
  }
  const int most = min(range.wanted, range.kept);
  for (int n = 0; n < most; ++n) {
    uint64_t best = 0;
    ForEachToken(slice, [&](float x, int id) {
      if (!range.Has(x)) return;
      const uint64_t key = KeyOfToken(x, id);
      if (key < before && key > best) best = key;
    });
    best = team.Max(best);
    if (best == 0) return;
    if (team.IsFirstThread()) put(n, IdOf(best));
    before = best;
  }
}

// The order key of a value that at least `needed` tokens reach, if there are as many; else of one
// that all do. largest: of the values of this thread that count; -inf: none. Clears the list.
__device__ inline uint32_t LikelyThreshold(const Team& team, float largest, int needed,
                                           LikelyMemory& memory) {
  LikelyMemory& first = *team.Of(0, &memory);
  if (team.thread() == 0) memory.threshold = memory.count = 0;
  uint32_t key = largest > -INFINITY ? semantics::OrderKey(largest) : 0;
  const int threads = team.threads() * team.blocks() / kLikelyGroups;  // of a group
  for (int step = threads / 2; step > 0; step /= 2) {
    key = max(key, __shfl_xor_sync(~0u, key, step));
  }
  team.Sync();  // all blocks have begun, and their memory is cleared
  if (team.thread() % threads == 0) {
    first.largest[(team.rank() * team.threads() + team.thread()) / threads] = key;
  }
  team.Sync();
  if (team.rank() == 0 && team.thread() < kLikelyGroups) {
    const uint32_t mine = memory.largest[team.thread()];
    int rank = 0;
    for (int g = 0; g < kLikelyGroups; ++g) {
      const uint32_t other = memory.largest[g];
      rank += other > mine || (other == mine && g < team.thread()) ? 1 : 0;
    }
    if (rank == needed - 1) memory.threshold = mine;
  }
  team.Sync();
  return first.threshold;
}

// After LikelyThreshold.
__device__ inline void NoteLikely(LikelyMemory& first, float x, int id) {
  const uint32_t place = atomicAdd(&first.count, 1u);
  if (place < kMostLikely) first.tokens[place] = KeyOfToken(x, id);
}

// put(n, id) for the n-th of what was noted, by the first block.
template <typename Put>
__device__ void PutLikely(const Team& team, const LikelyMemory& memory, int count,
                          const LikelyRange& range, Put put) {
  const int most = min(range.wanted, range.kept);
  for (int i = team.thread(); i < count; i += team.threads()) {
    const uint64_t token = memory.tokens[i];
    int rank = 0;
    for (int j = 0; j < count; ++j) rank += memory.tokens[j] > token ? 1 : 0;
    const int n = rank - range.dropped;
    if (n >= 0 && n < most) put(n, IdOf(token));
  }
}

// put(n, id), in the first block, for the n-th of the tokens.
template <typename Slice, typename Put>
__device__ void ListLikely(const Team& team, const Slice& slice, int vocab,
                           const LikelyRange& range, LikelyMemory& memory, Put put) {
  LikelyMemory& first = *team.Of(0, &memory);
  float largest = -INFINITY;
  ForEachToken(slice, [&](float x, int) {
    if (range.Has(x)) largest = fmaxf(largest, x);
  });
  const uint32_t threshold = LikelyThreshold(team, largest, range.wanted + range.dropped, memory);
  ForEachToken(slice, [&](float x, int id) {
    if (range.Has(x) && semantics::OrderKey(x) >= threshold) NoteLikely(first, x, id);
  });
  team.Sync();
  const int count = static_cast<int>(first.count);
  team.Sync();  // every thread has read it
  if (count > kMostLikely) return ListOneByOne(team, slice, vocab, range, put);
  if (team.rank() == 0) PutLikely(team, memory, count, range, put);
}

}  // namespace sluice::cuda
