// The parts of a layer with vectors (Highway), compiled once for each SIMD target.
#include "model/layer_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/layer_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "model/layer-inl.h"
#include "model/multiply_vnni-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::model::HWY_NAMESPACE {

constexpr LayerTable kTable = {RmsNorm, Encode,   nullptr, Multiply,  Rotate,
                               Attend,  Activate, Add,     SoftCapAll};
#if HWY_TARGET == HWY_AVX3
constexpr LayerTable kVnniTable = {RmsNorm, Encode,   vnni::Narrow, vnni::Multiply, Rotate,
                                   Attend,  Activate, Add,          SoftCapAll};
#endif

}  // namespace sluice::model::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice::model {

const LayerTable kLayerAvx2 = N_AVX2::kTable;
const LayerTable kLayerAvx512 = N_AVX3::kTable;
const LayerTable kLayerAvx512Vnni = N_AVX3::kVnniTable;

}  // namespace sluice::model
#endif
