// The draws of a step: of rows with patches that are being filled with values, and of rows with
// rules that the plain kernel leaves to the definition.
#pragma once

#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

struct AdjustedSamples {
  TokenResult* results;  // null: ids and statuses
  int32_t* ids;
  RowStatus* statuses;
  RowPath* ways = nullptr;  // null: not reported
};

struct AdjustedDraw {
  // Launched directly after LaunchApply of the same patches, and overlapping it: everything but the
  // patches' values was written before.
  bool starts_early = false;
  // Some rows have typical sampling before a top-k: one or two reads more, or seldom some, take the
  // place of the definition's sixty.
  bool has_typical = false;
};

// As Sample or SampleIds.
void SampleAdjusted(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, const AdjustedDraw& draw, void* stream);

}  // namespace sluice::cuda
