// Which rows a rank's first message decides as draws from everything: all ranks agree on them.
#pragma once

#include "semantics/deciding_tokens.h"
#include "semantics/validate.h"
#include "sluice/cuda/shards.hpp"

namespace sluice::cuda {

SLUICE_HD inline bool IsDrawn(const SelectParams& params, const NoiseKey& key, const Limits& limits,
                              DrawMethod method, int64_t vocab) {
  return semantics::AreValid(params, limits) && semantics::IsValid(key) &&
         semantics::DecidingTokens(params, method, vocab) == semantics::Decides::kSoftmax;
}

}  // namespace sluice::cuda
