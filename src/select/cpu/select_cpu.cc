// Selection with vectors (Highway), compiled once for each SIMD target.
#include "select/select_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/cpu/select_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Highway's fallback for older processors is left out: its scalar target has no fma, and there the
// definition itself serves.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "select/cpu/collect-inl.h"
#include "select/cpu/cut_rows-inl.h"
#include "select/cpu/select_row-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const SelectTable kSelectAvx2 = {N_AVX2::SelectRowBytes, N_AVX2::SelectRowOfAnyDType,
                                 N_AVX2::MaskRows, N_AVX2::KeptBitmaskOfRows, N_AVX2::CollectRows};
const SelectTable kSelectAvx512 = {N_AVX3::SelectRowBytes, N_AVX3::SelectRowOfAnyDType,
                                   N_AVX3::MaskRows, N_AVX3::KeptBitmaskOfRows,
                                   N_AVX3::CollectRows};

}  // namespace sluice
#endif
