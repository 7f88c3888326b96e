// A hidden state as integers: h ~ h^ = scale (128 high + low) in the groups of the planes, 15 bits
// in two bytes, so that products with codes are sums of integers, which are equal in every order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "head/certified/bound.h"
#include "head/certified/planes.h"

namespace sluice {

struct HiddenGroup {
  alignas(64) int8_t high[kPlaneGroup];
  int8_t low[kPlaneGroup];
  int32_t start;  // -8 times the sum of the elements: codes are q + 8
  float scale;
  float dither;  // scale * sum of u_j times element j
  float square;  // n_g^2
};

struct HiddenState {
  const HiddenGroup* groups = nullptr;
  StepBound bound = {};
};

// groups: one a group of the planes. False when the hidden state is not finite.
bool EncodeHidden(const semantics::Row& hidden, const PlaneView& planes, HiddenGroup* groups,
                  HiddenState& state);

}  // namespace sluice
