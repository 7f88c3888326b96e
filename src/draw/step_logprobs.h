// Log-probabilities on the device, from the host's side: of the results of a call, or of the rows
// of a step with requests that report them.
#pragma once

#include "cuda/row_launch.h"
#include "draw/mode_value.h"
#include "sluice/cuda/logprobs.hpp"

namespace sluice::cuda {

// The report of a row's request.
struct RequestedLogprobs {
  bool is_requested;
  LogprobMode mode;
  int16_t listed;  // of the most likely tokens
};

// The reports of all rows. Rows with another mode are left alone; those without a report or a token
// get NaN and 0.
struct StepLogprobs {
  const RequestedLogprobs* requested = nullptr;
  const int32_t* ids = nullptr;  // -1: no token
  float* logprobs = nullptr;
  int32_t* ranks = nullptr;
  // The place of each row of the call in all other arrays; null: the rows are those of the step.
  const int32_t* places = nullptr;
};

struct LogprobsArgument {
  RowsArgument rows;
  LogprobMode mode;
  TokenResult* results;   // read and written; of a step read for its Cuts, or null
  uint64_t* kept_masses;  // null: not requested
  RowList lists;          // of all rows; width 0: not requested
  StepLogprobs step;      // of a step
};

// starts_early: directly after the kernel that draws the ids, from logits that were there before.
void LaunchLogprobs(const LogprobsArgument& argument, DType dtype, void* stream,
                    bool starts_early = false);

// In raw modes, of rows without patches or masses of Cuts.
const void* RawLogprobsKernelFor(DType dtype);

}  // namespace sluice::cuda
