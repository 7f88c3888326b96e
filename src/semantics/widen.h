// Logits arrive as fp32, bf16 or fp16 and are widened first. Widening is exact.
#pragma once

#include "semantics/host_device.h"
#include "sluice/tensor.hpp"

namespace sluice::semantics {

SLUICE_HD inline float WidenBf16(uint16_t bits) {
  return FloatOf(static_cast<uint32_t>(bits) << 16);
}

SLUICE_HD inline float WidenF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return FloatOf(BitsOf(magnitude) | sign);
  }
  if (exponent == 31) return FloatOf(sign | 0x7f800000u | (fraction << 13));
  return FloatOf(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

SLUICE_HD inline float Load(const void* row, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(row)[i];
    case DType::kBf16:
      return WidenBf16(static_cast<const uint16_t*>(row)[i]);
    case DType::kF16:
      return WidenF16(static_cast<const uint16_t*>(row)[i]);
  }
  return QuietNan();
}

// One row of logits or scores, read as fp32.
struct Row {
  const void* data;
  DType dtype;
  int64_t size;

  SLUICE_HD float operator[](int64_t i) const { return Load(data, dtype, i); }
};

}  // namespace sluice::semantics
