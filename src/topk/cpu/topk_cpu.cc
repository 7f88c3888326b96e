// topk with vectors (Highway), compiled once for each SIMD target.
#include "topk/topk_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "topk/cpu/topk_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc: elsewhere the definition itself serves.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "topk/cpu/topk_row-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const TopkTable kTopkAvx2 = {N_AVX2::TopkRowBytes, N_AVX2::TopkRowOfAnyDType};
const TopkTable kTopkAvx512 = {N_AVX3::TopkRowBytes, N_AVX3::TopkRowOfAnyDType};

}  // namespace sluice
#endif
