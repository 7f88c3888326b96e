// Stage 6: x + b, b clamped to [-100, 100].
#pragma once

#include <span>

#include "semantics/host_device.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

SLUICE_HD inline float Biased(float x, float bias) {
  const float clamped = bias < -100.0f ? -100.0f : bias > 100.0f ? 100.0f : bias;
  return x + clamped;
}

// Entries are applied in order; an id may appear more than once.
SLUICE_HD inline void ApplyBias(std::span<float> x, std::span<const BiasEntry> entries) {
  for (const BiasEntry& entry : entries) {
    float& value = x[static_cast<size_t>(entry.id)];
    value = Biased(value, entry.bias);
  }
}

}  // namespace sluice::semantics
