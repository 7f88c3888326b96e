// The parts of a layer with vectors (Highway), compiled once for each SIMD target.
#include "model/layer_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/layer_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "model/layer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::model::HWY_NAMESPACE {

constexpr LayerTable kTable = {RmsNorm, Encode,   Multiply, Rotate,
                               Attend,  Activate, Add,      SoftCapAll};

}  // namespace sluice::model::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice::model {

const LayerTable kLayerAvx2 = N_AVX2::kTable;
const LayerTable kLayerAvx512 = N_AVX3::kTable;

}  // namespace sluice::model
#endif
