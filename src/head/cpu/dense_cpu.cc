// The dense head with vectors (Highway), compiled once for each SIMD target.
#include "head/dense_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "head/cpu/dense_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "head/cpu/dense-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const DenseHeadTable kDenseHeadAvx2 = {N_AVX2::ProjectDense, N_AVX2::ProjectSome};
const DenseHeadTable kDenseHeadAvx512 = {N_AVX3::ProjectDense, N_AVX3::ProjectSome};

}  // namespace sluice
#endif
