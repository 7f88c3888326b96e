// The threads that share one row: a thread block, or the blocks of a cluster, which Hopper has.
//
// Every function here is called by all threads of the team, and all get the same answer.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace sluice::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kMostWarps = 32;

// In shared memory.
struct TeamMemory {
  uint64_t of_warp[kMostWarps];
  uint64_t of_block;
};

class Team {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ explicit Team(TeamMemory& memory)
      : memory_(memory),
        rank_(static_cast<int>(cooperative_groups::this_cluster().block_rank())),
        blocks_(static_cast<int>(cooperative_groups::this_cluster().num_blocks())) {}
#else
  __device__ explicit Team(TeamMemory& memory) : memory_(memory), rank_(0), blocks_(1) {}
#endif

  // This block alone, when the others have left.
  __device__ Team Block() const { return Team(memory_, 0, 1); }

  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ bool IsFirstThread() const { return rank() == 0 && thread() == 0; }

  // Of this block in the team.
  __device__ int rank() const { return rank_; }
  __device__ int blocks() const { return blocks_; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ void Sync() const {
    if (blocks() == 1) {
      __syncthreads();
    } else {
      cooperative_groups::this_cluster().sync();
    }
  }
  // The same variable of another block's shared memory.
  template <typename T>
  __device__ T* Of(int rank, T* mine) const {
    return cooperative_groups::this_cluster().map_shared_rank(mine, static_cast<unsigned>(rank));
  }
#else
  __device__ void Sync() const { __syncthreads(); }
  template <typename T>
  __device__ T* Of(int, T* mine) const {
    return mine;
  }
#endif

  // Of this block.
  template <typename Op>
  __device__ uint64_t ReduceBlock(uint64_t value, Op op) const {
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      value = op(value, __shfl_xor_sync(~0u, value, step));
    }
    __syncthreads();  // the memory may still be read
    if (thread() % kWarpSize == 0) memory_.of_warp[thread() / kWarpSize] = value;
    __syncthreads();
    value = memory_.of_warp[0];
    for (int warp = 1; warp < threads() / kWarpSize; ++warp) {
      value = op(value, memory_.of_warp[warp]);
    }
    return value;
  }
  __device__ uint64_t SumOfBlock(uint64_t value) const {
    return ReduceBlock(value, [](uint64_t a, uint64_t b) { return a + b; });
  }
  __device__ uint64_t MaxOfBlock(uint64_t value) const {
    return ReduceBlock(value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  // Of the team.
  template <typename Op>
  __device__ uint64_t Reduce(uint64_t value, Op op) const {
    value = ReduceBlock(value, op);
    if (blocks() == 1) return value;
    if (thread() == 0) memory_.of_block = value;
    Sync();
    value = *Of(0, &memory_.of_block);
    for (int other = 1; other < blocks(); ++other) {
      value = op(value, *Of(other, &memory_.of_block));
    }
    Sync();
    return value;
  }

  __device__ uint64_t Sum(uint64_t value) const {
    return Reduce(value, [](uint64_t a, uint64_t b) { return a + b; });
  }
  __device__ uint64_t Max(uint64_t value) const {
    return Reduce(value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  // Of the threads of this block, in their order: what those before this one have.
  __device__ uint64_t SumBefore(uint64_t value) const {
    const int lane = thread() % kWarpSize;
    uint64_t through = value;
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, through, static_cast<unsigned>(step));
      if (lane >= step) through += other;
    }
    __syncthreads();
    if (lane == kWarpSize - 1) memory_.of_warp[thread() / kWarpSize] = through;
    __syncthreads();
    uint64_t before = through - value;
    for (int warp = 0; warp < thread() / kWarpSize; ++warp) before += memory_.of_warp[warp];
    return before;
  }

 private:
  __device__ Team(TeamMemory& memory, int rank, int blocks)
      : memory_(memory), rank_(rank), blocks_(blocks) {}

  TeamMemory& memory_;
  int rank_;
  int blocks_;
};

}  // namespace sluice::cuda
