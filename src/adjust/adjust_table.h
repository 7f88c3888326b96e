// The functions of a backend for the adjustments (stages 3 to 9): one row at a time, in fp32.
#pragma once

#include "semantics/adjust/adjust.h"
#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

struct AdjustTable {
  void (*widen)(const void* row, DType dtype, std::span<float> values);
  void (*adjust)(std::span<float> values, const semantics::AdjustInput& input);
  void (*force)(std::span<float> values, int32_t token);
};

extern const AdjustTable kAdjustRef;
extern const AdjustTable kAdjustAvx2;
extern const AdjustTable kAdjustAvx512;

const AdjustTable& AdjustTableFor(Backend backend);

}  // namespace sluice
