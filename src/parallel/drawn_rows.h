// Which rows a rank's first message decides as draws from everything: all ranks say the same.
#pragma once

#include "semantics/draw.h"
#include "semantics/select.h"
#include "semantics/validate.h"
#include "sluice/cuda_shards.hpp"

namespace sluice::cuda {

SLUICE_HD inline bool IsDrawn(const SelectParams& params, const NoiseKey& key, const Limits& limits,
                              DrawMethod method, int64_t vocab) {
  return method == DrawMethod::kGumbel && !semantics::IsGreedy(params) &&
         (params.top_k <= 0 || params.top_k >= vocab) && params.top_p == 1 && params.min_p == 0 &&
         params.top_n_sigma == 0 && params.typical_p == 1 && params.xtc_probability == 0 &&
         semantics::AreValid(params, limits) && semantics::IsValid(key);
}

}  // namespace sluice::cuda
