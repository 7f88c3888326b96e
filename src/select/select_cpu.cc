// Selection with vectors (Highway), compiled once for each SIMD target.
#include "select/select_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/select_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Highway's fallback for older processors is left out: its scalar target has no fma, and there the
// definition itself serves.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "select/select_row-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const SelectTable kSelectAvx2 = {N_AVX2::SelectRowBytes, N_AVX2::SelectRowOfAnyDType,
                                 MaskByDefinition, KeptBitmaskByDefinition, CollectByDefinition};
const SelectTable kSelectAvx512 = {N_AVX3::SelectRowBytes, N_AVX3::SelectRowOfAnyDType,
                                   MaskByDefinition, KeptBitmaskByDefinition, CollectByDefinition};

}  // namespace sluice
#endif
