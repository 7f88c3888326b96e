// The instructions that CUDA C++ has no word for.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// 16 bytes that nobody reads again soon and nobody writes during the kernel: past L1.
__device__ __forceinline__ uint4 LoadOnce(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

}  // namespace sluice::cuda
