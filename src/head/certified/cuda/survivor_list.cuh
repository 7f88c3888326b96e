// What the survivors of a row say of its first place, by a block.
#pragma once

#include "cuda/token_list.cuh"
#include "head/certified/certified_tokens.h"

namespace sluice::cuda {

// The key of the first of them in the total order; 0 when all are -inf.
__device__ inline uint64_t FirstSurvivor(const Team& block, const CertifiedTokens& survivors) {
  uint64_t best = 0;
  for (int i = block.thread(); i < survivors.size; i += block.threads()) {
    const auto [x, id] = survivors.data[i];
    if (x > -INFINITY) best = max(best, KeyOfToken(x, id));
  }
  return block.Max(best);
}

}  // namespace sluice::cuda
