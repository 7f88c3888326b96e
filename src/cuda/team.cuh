// The threads that share one row: a thread block, or the blocks of a cluster, which Hopper has.
//
// Every function here is called by all threads of the team, and all get the same answer.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "cuda/ptx.cuh"

namespace sluice::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kMostWarps = 32;
inline constexpr int kMostBlocks = 8;

// In shared memory.
struct TeamMemory {
  uint64_t of_warp[kMostWarps];
  uint64_t of_block;
};

// Operations on two values.
struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// kIsWhole: all threads of the blocks, else the first ones of one block.
template <bool kIsWhole>
class BasicTeam {
 public:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ explicit BasicTeam(TeamMemory& memory)
      : BasicTeam(memory, static_cast<int>(cooperative_groups::this_cluster().block_rank()),
                  static_cast<int>(cooperative_groups::this_cluster().num_blocks()),
                  static_cast<int>(blockDim.x)) {}
#else
  __device__ explicit BasicTeam(TeamMemory& memory)
      : BasicTeam(memory, 0, 1, static_cast<int>(blockDim.x)) {}
#endif

  // This block alone, while the others wait.
  __device__ BasicTeam Block() const { return BasicTeam(memory_, 0, 1, threads_); }
  // Its first threads alone, whole warps.
  __device__ BasicTeam<false> FirstThreads(int threads) const {
    return BasicTeam<false>(memory_, 0, 1, threads);
  }

  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int lane() const { return thread() % kWarpSize; }
  __device__ int threads() const { return threads_; }  // of a block
  __device__ bool IsFirstThread() const { return rank() == 0 && thread() == 0; }
  // The place of this block in the team.
  __device__ int rank() const { return rank_; }
  __device__ int blocks() const { return blocks_; }

  // Synchronises this block.
  __device__ void SyncBlock() const {
    if constexpr (kIsWhole) {
      __syncthreads();
    } else {
      SyncThreads(threads_);
    }
  }
  __device__ int CountOfBlock(bool predicate) const {
    if constexpr (kIsWhole) {
      return __syncthreads_count(predicate);
    } else {
      return CountThreads(threads_, predicate);
    }
  }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ void Sync() const {
    if (blocks() == 1) {
      SyncBlock();
    } else {
      cooperative_groups::this_cluster().sync();
    }
  }
  // This block has started; and until all have: nothing for a block alone. No Sync of memory.
  __device__ void ArriveStarted() const {
    if (blocks() > 1) ArriveRelaxed();
  }
  __device__ void AwaitStarted() const {
    if (blocks() > 1) cooperative_groups::this_cluster().barrier_wait();
  }
  // The same variable of another block's shared memory.
  template <typename T>
  __device__ T* Of(int rank, T* mine) const {
    if (blocks() == 1) return mine;
    return cooperative_groups::this_cluster().map_shared_rank(mine, static_cast<unsigned>(rank));
  }
#else
  __device__ void Sync() const { SyncBlock(); }
  __device__ void ArriveStarted() const {}
  __device__ void AwaitStarted() const {}
  template <typename T>
  __device__ T* Of(int, T* mine) const {
    return mine;
  }
#endif

  // Sums over all blocks, by each thread for itself, with all loads in flight at once.
  __device__ uint32_t SumOverBlocks(uint32_t* mine) const {
    uint32_t sum = 0;
#pragma unroll
    for (int r = 0; r < kMostBlocks; ++r) sum += r < blocks() ? *Of(r, mine) : 0;
    return sum;
  }

  // Reduces over the lanes of a warp.
  template <typename T, typename Op>
  static __device__ T ReduceWarp(T value, Op op) {
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      value = op(value, static_cast<T>(__shfl_xor_sync(~0u, value, step)));
    }
    return value;
  }

  // As above by the instruction that reduces 32 bits: 60 cycles instead of 230 for the shuffles.
  static __device__ uint64_t ReduceWarp(uint64_t value, Plus) {
    constexpr int kBits = 22;  // 32 of them have a sum of 27
    constexpr uint32_t kMask = (1u << kBits) - 1;
    const uint32_t low = __reduce_add_sync(~0u, static_cast<uint32_t>(value) & kMask);
    const uint32_t middle = __reduce_add_sync(~0u, static_cast<uint32_t>(value >> kBits) & kMask);
    const uint32_t high = __reduce_add_sync(~0u, static_cast<uint32_t>(value >> 2 * kBits));
    return low + (uint64_t{middle} << kBits) + (uint64_t{high} << 2 * kBits);
  }
  static __device__ uint64_t ReduceWarp(uint64_t value, Larger) {
    const uint32_t high = static_cast<uint32_t>(value >> 32);
    const uint32_t most = __reduce_max_sync(~0u, high);
    const uint32_t low = __reduce_max_sync(~0u, high == most ? static_cast<uint32_t>(value) : 0);
    return uint64_t{most} << 32 | low;
  }

  // get(other) of all blocks, one a lane, because a load from another block takes 220 cycles.
  template <typename T, typename Get, typename Op>
  __device__ T ReduceBlocks(T none, Get get, Op op) const {
    return ReduceWarp(lane() < blocks() ? get(lane()) : none, op);
  }

  // Reduces over this block. T{} changes nothing in `op`. T: 8 bytes.
  template <typename T, typename Op>
  __device__ T ReduceBlock(T value, Op op) const {
    value = ReduceWarp(value, op);
    const int warps = threads() / kWarpSize;
    if (warps == 1) return value;
    T* of_warp = reinterpret_cast<T*>(memory_.of_warp);
    SyncBlock();  // the memory may still be read
    if (lane() == 0) of_warp[thread() / kWarpSize] = value;
    SyncBlock();
    return ReduceWarp(lane() < warps ? of_warp[lane()] : T{}, op);
  }
  __device__ uint64_t SumOfBlock(uint64_t value) const { return ReduceBlock(value, Plus{}); }
  __device__ uint64_t MaxOfBlock(uint64_t value) const { return ReduceBlock(value, Larger{}); }

  // Reduces over the team.
  template <typename Op>
  __device__ uint64_t Reduce(uint64_t value, Op op) const {
    value = ReduceBlock(value, op);
    if (blocks() == 1) return value;
    if (thread() == 0) memory_.of_block = value;
    Sync();
    value = ReduceBlocks(uint64_t{0}, [&](int other) { return *Of(other, &memory_.of_block); }, op);
    Sync();
    return value;
  }

  __device__ uint64_t Sum(uint64_t value) const { return Reduce(value, Plus{}); }
  __device__ uint64_t Max(uint64_t value) const { return Reduce(value, Larger{}); }

  // Sums over the lanes up to this one.
  template <typename T>
  __device__ T SumThrough(T value) const {
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      const T other = __shfl_up_sync(~0u, value, static_cast<unsigned>(step));
      if (lane() >= step) value += other;
    }
    return value;
  }

  // Sums over the threads of this block, in their order: what those before this one have, and what
  // all have. T: 8 bytes.
  template <typename T>
  struct Sums {
    T before;
    T all;
  };
  template <typename T>
  __device__ Sums<T> SumsOfBlock(T value) const {
    const int warps = threads() / kWarpSize;
    const T through = SumThrough(value);
    T* of_warp = reinterpret_cast<T*>(memory_.of_warp);
    SyncBlock();  // the memory may still be read
    if (lane() == kWarpSize - 1) of_warp[thread() / kWarpSize] = through;
    SyncBlock();
    const T mine = lane() < warps ? of_warp[lane()] : T{};
    const T before = ReduceWarp(lane() < thread() / kWarpSize ? mine : T{}, Plus{});
    return {through - value + before, ReduceWarp(mine, Plus{})};
  }
  template <typename T>
  __device__ T SumBefore(T value) const {
    return SumsOfBlock(value).before;
  }

 private:
  template <bool>
  friend class BasicTeam;

  __device__ BasicTeam(TeamMemory& memory, int rank, int blocks, int threads)
      : memory_(memory), rank_(rank), blocks_(blocks), threads_(threads) {}

  TeamMemory& memory_;
  int rank_;
  int blocks_;
  int threads_;
};

using Team = BasicTeam<true>;
using FirstThreads = BasicTeam<false>;

}  // namespace sluice::cuda
