// How much of the lists of prompt tokens a step gives, which bounds its memory and its frames.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sluice/step_runner.hpp"

namespace sluice::engine {

// Entries of all rows of a step together: one list of the widest always fits.
inline int64_t MostPromptEntries(const RunnerInfo& info) {
  const int64_t listed = info.max_logprobs < 0 ? info.vocab : info.max_logprobs;
  return std::max(kUsualPromptEntries, 1 + listed);
}

}  // namespace sluice::engine
