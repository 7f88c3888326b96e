// What the survivors of a row say of its first place, by a block.
#pragma once

#include "cuda/token_list.cuh"
#include "head/certified/cuda/device_call.h"

namespace sluice::cuda {

// The key of the first of them in the total order; 0 when all are -inf.
__device__ inline uint64_t FirstSurvivor(const Team& block, const Survivor* survivors, int count) {
  uint64_t best = 0;
  for (int i = block.thread(); i < count; i += block.threads()) {
    const auto [x, id] = survivors[i];
    if (x > -INFINITY) best = max(best, KeyOfToken(x, id));
  }
  return block.Max(best);
}

}  // namespace sluice::cuda
