// The log-probabilities that calls on rows report on request.
#pragma once

#include "python/values/arrays.h"
#include "python/values/results.h"
#include "python/values/rows.h"
#include "sluice/logprobs.hpp"

namespace sluice::python {

// Makes room for the lists of `logprobs=N`, or none.
void FitLogprobs(TokenResults& tokens, const RowParams& params, int64_t vocab);

// Fills what FitLogprobs made room for.
void FillLogprobs(TokenResults& tokens, const LogitsView& logits, const RowParams& params,
                  const Execution& execution);

}  // namespace sluice::python
