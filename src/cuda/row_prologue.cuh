// How the kernels that guess start on a row: its first vectors and its parameters are on the way
// at once, and the largest values of 256 groups of threads go to all blocks of the team.
#pragma once

#include "cuda/vector_slice.cuh"
#include "semantics/order.h"
#include "semantics/temperature.h"

namespace sluice::cuda {

inline constexpr int kGroups = 256;
inline constexpr int kGroupsALane = kGroups / kWarpSize;

// In shared memory. Groups of threads follow each other as their threads do.
struct RowPrologue {
  uint64_t barrier;  // of the largest values

  SelectParams params;
  NoiseKey key;
  semantics::Scales scales;
  uint32_t largest[kGroups];  // order keys of the first vectors
  float mass[kGroups];
};

// The threads of a group, neighbouring lanes: from 2 to 16, and as many as the team has blocks or
// more.
__device__ inline int ThreadsOfGroup(const Team& team) {
  return team.threads() * team.blocks() / kGroups;
}

// send(block, group): called for all blocks, by a thread of this thread's group each.
template <typename Send>
__device__ void ShareOfGroup(const Team& team, Send send) {
  const int threads = ThreadsOfGroup(team);
  const int block = team.lane() % threads;
  const int group = (team.rank() * team.threads() + team.thread()) / threads;
  if (block < team.blocks()) send(block, group);
}

// Before StartRow. No block writes to one that has not begun. What the first thread has cleared is
// visible when another block hears from its group of threads.
__device__ inline void BeginRow(const Team& team, RowPrologue& start) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.thread() == 0 && team.blocks() > 1) {
    StartBarrier(&start.barrier);
    ExpectBytes(&start.barrier, sizeof start.largest);
  }
#endif
  team.ArriveStarted();
}

// Gives the largest value of this thread's group to all blocks. between(): called before they wait.
template <typename Between>
__device__ void ShareLargest(const Team& team, uint32_t value, RowPrologue& start,
                             Between between) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() > 1) {
    team.AwaitStarted();
    ShareOfGroup(team, [&](int block, int group) {
      SendWord(block, start.largest + group, value, &start.barrier);
    });
    between();
    AwaitBarrier(&start.barrier, 0);
    team.SyncBlock();
    return;
  }
#endif
  ShareOfGroup(team, [&](int, int group) { start.largest[group] = value; });
  between();
  team.SyncBlock();
}

// The values of this lane's groups.
template <typename T>
struct OfGroups {
  __device__ OfGroups(const Team& team, const T* of_groups) {
#pragma unroll
    for (int i = 0; i < kGroupsALane; ++i) value[i] = of_groups[i * kWarpSize + team.lane()];
  }

  T value[kGroupsALane];
};

// The words of a struct, one a thread.
template <typename T>
__device__ uint32_t LoadWord(const T& source, int word) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) / 4 <= kWarpSize);
  return word >= 0 && word < static_cast<int>(sizeof(T) / 4)
             ? reinterpret_cast<const uint32_t*>(&source)[word]
             : 0;
}
template <typename T>
__device__ void StoreWord(T& target, int word, uint32_t value) {
  if (word >= 0 && word < static_cast<int>(sizeof(T) / 4)) {
    reinterpret_cast<uint32_t*>(&target)[word] = value;
  }
}

// Shared memory for the marks of patches.
struct MarkRoom {
  void* data;
  size_t bytes;
};

// After BeginRow. prepare(): called by the first warp once it has the parameters, while the blocks
// exchange their values. The first vectors become those of the patched row.
template <DType kDType, bool kPatched, typename Prepare>
__device__ void StartRow(const Team& team, const RowsArgument& rows, int row,
                         VectorSlice<kDType, kPatched>& slice, const MarkRoom& room,
                         FirstVectors& loaded, RowPrologue& start, Prepare prepare) {
  const SelectParams& params = rows.params[rows.has_params_per_row ? row : 0];
  const NoiseKey& key =
      rows.keys == nullptr ? rows.no_key : rows.keys[rows.has_keys_per_row ? row : 0];
  const uint32_t word_of_params = LoadWord(params, team.thread());
  const uint32_t word_of_key = LoadWord(key, team.thread());

  slice.MarkPatches(team, room.data, room.bytes);
  slice.PatchFirst(loaded);
  float largest = -INFINITY;
#pragma unroll
  for (const uint4& raw : loaded) largest = fmaxf(largest, Vector<kDType>(raw).Largest());
  uint32_t of_group = semantics::OrderKey(largest);
  const int threads = ThreadsOfGroup(team);
  for (int step = 1; step < threads; step *= 2) {
    of_group = max(of_group, __shfl_xor_sync(~0u, of_group, step));
  }
  StoreWord(start.params, team.thread(), word_of_params);
  StoreWord(start.key, team.thread(), word_of_key);
  ShareLargest(team, of_group, start, [&] {
    if (team.thread() >= kWarpSize) return;
    __syncwarp();
    start.scales = semantics::ScalesOf(start.params);
    prepare();
  });
}

// The largest value of the first vectors of the team.
__device__ inline float LargestOfFirst(const Team& team, const RowPrologue& start) {
  const OfGroups<uint32_t> of_groups(team, start.largest);
  uint32_t largest = of_groups.value[0];
#pragma unroll
  for (int i = 1; i < kGroupsALane; ++i) largest = max(largest, of_groups.value[i]);
  return semantics::ValueOfKey(__reduce_max_sync(~0u, largest));
}

}  // namespace sluice::cuda
