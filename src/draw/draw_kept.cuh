// One token from a kept set whose tokens stand in the order, one a thread.
#pragma once

#include "backend/team.cuh"
#include "semantics/draw.h"

namespace sluice::cuda {

struct KeptToken {
  bool is_kept;  // threads with kept tokens are neighbours
  float x;
  int32_t id;
};

// The thread whose token the draw takes. `weights` and `ids`: shared memory, an element a thread.
__device__ inline int WinnerOfKept(const FirstThreads& team, const KeptToken& token, float max,
                                   float scale, DrawMethod method, const NoiseKey& key,
                                   uint64_t* weights, int32_t* ids) {
  const uint32_t place = ~static_cast<uint32_t>(team.thread());  // the first of equals is largest
  if (method == DrawMethod::kGumbel) {
    uint64_t score = 0;
    if (token.is_kept) {
      const float g =
          semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), token.id));
      const float sum = semantics::LogWeight(token.x, max, scale) + g;
      score = static_cast<uint64_t>(semantics::OrderKey(sum)) << 32 | place;
    }
    return static_cast<int>(~static_cast<uint32_t>(team.MaxOfBlock(score)));
  }
  const uint64_t weight = token.is_kept ? semantics::Weight(token.x, max, scale) : 0;
  const uint64_t mass = team.SumOfBlock(weight);
  weights[team.thread()] = weight;
  ids[team.thread()] = token.is_kept ? token.id : INT32_MAX;
  team.SyncBlock();
  uint64_t answer = 0;
  if (mass == 0) {  // the first in the order
    answer = token.is_kept ? static_cast<uint64_t>(place) : 0;
  } else if (token.is_kept) {
    uint64_t running = 0;  // in the order of ids
    for (int other = 0; other < team.threads(); ++other) {
      if (ids[other] <= token.id) running += weights[other];
    }
    const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
    if (running > threshold) {
      answer = static_cast<uint64_t>(~static_cast<uint32_t>(token.id)) << 32 | place;
    }
  }
  return static_cast<int>(~static_cast<uint32_t>(team.MaxOfBlock(answer)));
}

}  // namespace sluice::cuda
