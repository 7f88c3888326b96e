// Which rows a rank's first message decides as draws from everything: all ranks agree on them.
#pragma once

#include "semantics/filters/filter_class.h"
#include "semantics/validate.h"
#include "sluice/cuda/shards.hpp"

namespace sluice::cuda {

SLUICE_HD inline bool IsDrawn(const SelectParams& params, const NoiseKey& key, const Limits& limits,
                              DrawMethod method, int64_t vocab) {
  return semantics::AreValid(params, limits) && semantics::IsValid(key) &&
         semantics::FilterClassOf(params, method, vocab) == semantics::FilterClass::kSoftmax;
}

}  // namespace sluice::cuda
