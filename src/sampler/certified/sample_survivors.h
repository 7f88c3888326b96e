// The last steps of a certified draw on the device.
#pragma once

#include "head/certified/cuda/certified_kernels.h"

namespace sluice::cuda {

struct DrawnTokens {
  int32_t* ids;
  RowStatus* statuses;  // null: not reported
};

// After LaunchCertifiedPrefix: the draw from what survived; rows without an answer join the dense
// ones.
void SampleSurvivors(const CertifiedArgs& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream);

// After LaunchDense: the draw from the logits of the dense rows.
void SampleDenseRows(const CertifiedArgs& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream);

}  // namespace sluice::cuda
