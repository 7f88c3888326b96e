// The instructions that CUDA C++ has no word for.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// 16 bytes that nobody reads again soon, past L1. Whoever writes them in the same kernel does so
// behind the last such load of them.
__device__ __forceinline__ uint4 LoadOnce(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// 2^x within 2^-22 of it; never falls below 0, and NaN of NaN.
__device__ __forceinline__ float Exp2Approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x, as a value that the compiler knows nothing of: what a branch that is seldom taken computes
// from it is computed there, and not kept for it on the way.
__device__ __forceinline__ float Again(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
__device__ __forceinline__ uint32_t Again(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// A barrier of the first `threads` threads of a block, whole warps. Number 0 is __syncthreads.
__device__ __forceinline__ void SyncThreads(int threads) {
  asm volatile("barrier.cta.sync 1, %0;" ::"r"(threads) : "memory");
}

// The same, and in how many of them the predicate holds.
__device__ __forceinline__ int CountThreads(int threads, bool predicate) {
  int count;
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; barrier.cta.red.popc.u32 %0, 1, %1, p; }"
               : "=r"(count)
               : "r"(threads), "r"(static_cast<int>(predicate))
               : "memory");
  return count;
}

}  // namespace sluice::cuda
