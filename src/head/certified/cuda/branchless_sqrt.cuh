// Square roots without a branch, of numbers for which sqrtf needs none.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Neither tiny, below 2^-101, nor infinite nor negative nor NaN.
__device__ __forceinline__ bool HasBranchlessSqrt(float x) {
  return __float_as_uint(x) - 0x0d000000u <= 0x727fffffu;
}
// The bits of sqrtf for such a number, computed as sqrtf does there: a test compares all of them.
__device__ __forceinline__ float BranchlessSqrt(float x) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  const float root = __fmul_rn(x, inverse);
  const float rest = __fmaf_rn(-root, root, x);
  return __fmaf_rn(rest, __fmul_rn(inverse, 0.5f), root);
}

}  // namespace sluice::cuda
