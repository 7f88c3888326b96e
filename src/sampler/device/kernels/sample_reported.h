// The draw of a step with requests for log-probabilities as the model gave them.
#pragma once

#include "draw/step_logprobs.h"
#include "sampler/device/kernels/sample_adjusted.h"

namespace sluice::cuda {

// SampleIds and then LaunchLogprobs of `report`, a raw mode of a step, in one kernel: of rows
// without patches, which the report has as well.
void SampleReported(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, const LogprobsArgument& report, void* stream);

}  // namespace sluice::cuda
