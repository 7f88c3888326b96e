// Stage 7, in this order, each with its own rounding:
//
//   repetition r, tokens of prompt or output:  x > 0 ? x / r : x * r
//   frequency f, output tokens:                x - fl(f * count)
//   presence q, output tokens:                 x - q if count > 0
//
// Profiles that count the prompt use its counts for the last two as well.
#pragma once

#include <span>

#include "semantics/adjust/token_counts.h"
#include "sluice/profile.hpp"

namespace sluice::semantics {

struct Penalties {
  float repetition = 1.0f;
  float frequency = 0.0f;
  float presence = 0.0f;
};

SLUICE_HD inline float Penalized(float x, const Penalties& penalties, const TokenCount& count,
                                 PenaltyScope scope) {
  if (penalties.repetition != 1.0f) {
    x = x > 0 ? x / penalties.repetition : x * penalties.repetition;
  }
  const uint32_t counted =
      count.in_output + (scope == PenaltyScope::kPromptAndOutput ? count.in_prompt : 0);
  if (counted > 0) {
    const float by_frequency = penalties.frequency * static_cast<float>(counted);
    x = x - by_frequency;
    x = x - penalties.presence;
  }
  return x;
}

SLUICE_HD inline void ApplyPenalties(std::span<float> x, const Penalties& penalties,
                                     std::span<const TokenCount> counts, PenaltyScope scope) {
  for (const TokenCount& count : counts) {
    float& value = x[static_cast<size_t>(count.id)];
    value = Penalized(value, penalties, count, scope);
  }
}

}  // namespace sluice::semantics
