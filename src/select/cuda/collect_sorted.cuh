// Kept tokens of a row by the total order: sorted by one block, or, where they are more than it
// sorts at once, one part after the other.
#pragma once

#include "cuda/cut_ids.cuh"
#include "cuda/row_slice.cuh"
#include "cuda/sort_keys.cuh"
#include "cuda/token_list.cuh"

namespace sluice::cuda {

inline constexpr int kMostSorted = 4096;  // tokens that a block sorts at once

// In shared memory.
struct SortedMemory {
  uint64_t keys[kMostSorted];  // of the first block
  uint32_t size;
  FindMemory find;
};

// put(place, id, x) for the first block's keys, at the places from `first` on and before `end`.
template <typename Slice, typename Put>
__device__ void PutSorted(const Team& block, SortedMemory& memory, const Slice& slice,
                          int64_t first, int64_t end, int size, Put put) {
  SortDescending(block, memory.keys, size);
  for (int i = block.thread(); i < size && first + i < end; i += block.threads()) {
    const int32_t id = IdOf(memory.keys[i]);
    put(first + i, id, slice.ValueOf(id));  // -0 stays -0
  }
}

// The least key among the first `wanted` of those below `below`.
template <typename Slice>
__device__ uint64_t KeyOfRank(const Team& team, FindMemory& memory, const Slice& slice,
                              const CutIds& cut, uint64_t below, uint32_t wanted) {
  auto is_left = [&](float x, int id) { return cut.Keeps(x, id) && KeyOfToken(x, id) < below; };
  const Found value = Find<Amount::kCount>(team, memory, wanted, [&](auto add) {
    slice.ForEach([&](float x, int id) {
      if (is_left(x, id)) add(semantics::OrderKey(x), 1u, 0u);
    });
  });
  const Found tie = Find<Amount::kCount>(team, memory, wanted - value.count_above, [&](auto add) {
    slice.ForEach([&](float x, int id) {
      if (is_left(x, id) && semantics::OrderKey(x) == value.key)
        add(~static_cast<uint32_t>(id), 1u, 0u);
    });
  });
  return static_cast<uint64_t>(value.key) << 32 | tie.key;
}

// put(place, id, x) for the first `end` of the `kept` tokens: some ten reads for each 4096 of them.
template <typename Slice, typename Put>
__device__ void PutInParts(const Team& team, SortedMemory& memory, const Slice& slice,
                           const CutIds& ids, int64_t kept, int64_t end, Put put) {
  SortedMemory& first = *team.Of(0, &memory);
  uint64_t below = ~uint64_t{0};
#pragma unroll 1
  for (int64_t done = 0; done < min(kept, end); done += kMostSorted) {
    const int64_t left = kept - done;
    const uint64_t least =
        left > kMostSorted ? KeyOfRank(team, memory.find, slice, ids, below, kMostSorted) : 0;
    if (team.IsFirstThread()) memory.size = 0;
    team.Sync();
    slice.ForEach([&](float x, int id) {
      const uint64_t key = KeyOfToken(x, id);
      if (!ids.Keeps(x, id) || key >= below || key < least) return;
      first.keys[atomicAdd(&first.size, 1u)] = key;
    });
    team.Sync();
    if (team.rank() == 0) {
      PutSorted(team.Block(), memory, slice, done, end, static_cast<int>(memory.size), put);
    }
    below = least;
  }
  team.Sync();
}

}  // namespace sluice::cuda
