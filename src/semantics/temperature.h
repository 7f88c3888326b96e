// Temperature. It never touches the logits: order, ties, greedy and top-k do not depend on it. It
// enters the weights and the draw through TemperatureScale.
#pragma once

#include "semantics/host_device.h"
#include "semantics/weight.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

SLUICE_HD constexpr bool IsGreedy(const SelectParams& params) { return params.temperature == 0.0f; }

SLUICE_HD inline float EffectiveTemperature(float temperature) {
  return temperature < 0.01f ? 0.01f : temperature;
}

// The scale that the filters (stages 12 to 15) see, and the one that the draw sees.
struct Scales {
  float filter;
  float draw;
};

SLUICE_HD inline Scales ScalesOf(const SelectParams& params) {
  const float draw = TemperatureScale(EffectiveTemperature(params.temperature));
  const bool last = params.profile.temperature_stage == TemperatureStage::kLast;
  return {last ? TemperatureScale(1.0f) : draw, draw};
}

// A processed logit, when one is returned.
SLUICE_HD inline float ProcessedLogit(float x, const SelectParams& params) {
  return IsGreedy(params) ? x : x / EffectiveTemperature(params.temperature);
}

}  // namespace sluice::semantics
