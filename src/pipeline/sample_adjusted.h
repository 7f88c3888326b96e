// The draw of a step whose patches are being filled with values.
#pragma once

#include "sluice/cuda.hpp"

namespace sluice::cuda {

struct AdjustedSamples {
  TokenResult* results;  // null: ids and statuses
  int32_t* ids;
  RowStatus* statuses;
};

// As Sample or SampleIds, directly behind LaunchApply of the same patches, beside which it starts:
// all but their values was there before.
void SampleAdjusted(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, void* stream);

}  // namespace sluice::cuda
