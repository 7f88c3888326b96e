// One token from a kept set with its tokens in the order; for a cdf draw one a thread.
#pragma once

#include "cuda/team.cuh"
#include "semantics/draw/draw.h"

namespace sluice::cuda {

struct KeptToken {
  bool is_kept;  // threads with kept tokens are neighbours
  float x;
  int32_t id;
};

// The order key of a token's Gumbel score.
__device__ inline uint32_t ScoreKey(float x, int32_t id, float max, float scale,
                                    const NoiseKey& key) {
  const float g = semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), id));
  return semantics::OrderKey(semantics::LogWeight(x, max, scale) + g);
}

// A score with the place of its token among the kept: of equal scores the first place is largest.
__device__ inline uint64_t ScoredPlace(uint32_t score, int place) {
  return static_cast<uint64_t>(score) << 32 | ~static_cast<uint32_t>(place);
}
// The place of the token that the Gumbel draw takes. mine: the best of this thread, or 0.
template <class TeamOfRow>
__device__ int PlaceOfBest(const TeamOfRow& team, uint64_t mine) {
  return static_cast<int>(~static_cast<uint32_t>(team.MaxOfBlock(mine)));
}

// The thread with the token that the cdf draw takes. `weights` and `ids`: shared memory, an element
// a thread.
__device__ inline int WinnerByCdf(const FirstThreads& team, const KeptToken& token, float max,
                                  float scale, const NoiseKey& key, uint64_t* weights,
                                  int32_t* ids) {
  const uint32_t place = ~static_cast<uint32_t>(team.thread());
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

// The thread with the token that a draw takes, of a kept set that is a token a thread. score(): of
// a Gumbel draw, of this thread's token. room: shared memory, 12 bytes a thread.
template <typename Score>
__device__ int WinnerOfKept(const FirstThreads& team, const KeptToken& mine, DrawMethod method,
                            float max, float scale, const NoiseKey& key, uint64_t* room,
                            Score score) {
  if (method == DrawMethod::kGumbel) {
    return PlaceOfBest(team, mine.is_kept ? ScoredPlace(score(), team.thread()) : 0);
  }
  return WinnerByCdf(team, mine, max, scale, key, room,
                     reinterpret_cast<int32_t*>(room + team.threads()));
}

}  // namespace sluice::cuda
