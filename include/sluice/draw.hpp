// One token from a Cut. A draw is a pure function of the logits, the parameters and the NoiseKey.
#pragma once

#include <span>

#include "sluice/select.hpp"

namespace sluice {

// Fills id, status and cut of each result from the given Cuts.
void Draw(const SelectInput& input, DrawMethod method, std::span<const Cut> cuts,
          std::span<TokenResult> results, const Execution& execution);

// Select and Draw in one call.
void Sample(const SelectInput& input, DrawMethod method, std::span<TokenResult> results,
            const Execution& execution);

}  // namespace sluice
