// The tokens of a step with their log-probabilities as engines on torch pass them on: int64, the
// token of a row first and its most likely ones after it.
#pragma once

#include <cstdint>

#include "sluice/cuda/sampler.hpp"

namespace sluice::python {

struct TokenTable {
  int64_t* tokens;  // one a row; 0 where there is none, because engines look every token up
  int32_t columns;  // of the two tables, 1 + the most likely ones; 0: no tables
  int64_t* ids;     // one row of the table a row; 0 where a list is shorter
  float* logprobs;  // -inf there, and where a step has no log-probabilities
  int64_t* ranks;   // one a row
};

// Reads what the step gave, on the step's stream and before the next step.
void LaunchTokenTable(const cuda::StepHandle& step, const TokenTable& table, void* stream);

}  // namespace sluice::python
