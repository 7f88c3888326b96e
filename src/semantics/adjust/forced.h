// Stage 9: a forced token (the end of a thinking budget, say). Its value becomes 0, all others
// -inf, whatever they were.
#pragma once

#include <span>

#include "semantics/host_device.h"

namespace sluice::semantics {

SLUICE_HD inline void ApplyForced(std::span<float> x, int32_t forced) {
  for (float& value : x) value = -Infinity();
  x[static_cast<size_t>(forced)] = 0.0f;
}

}  // namespace sluice::semantics
