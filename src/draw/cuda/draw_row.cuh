// One token from a Cut on a team of threads, by the definition: every kept token is scored.
#pragma once

#include "cuda/cut_ids.cuh"
#include "semantics/draw/draw.h"

namespace sluice::cuda {

// The token that the Gumbel draw takes among those that threads have seen. Scores and values are
// compared as their order keys.
struct BestToken {
  uint64_t score_and_value = 0;  // 0: none was seen
  uint32_t id_complement = 0;

  // Whether it is the best so far.
  __device__ bool See(float score, float x, int32_t id) {
    const uint64_t both =
        static_cast<uint64_t>(semantics::OrderKey(score)) << 32 | semantics::OrderKey(x);
    const uint32_t complement = ~static_cast<uint32_t>(id);
    if (both < score_and_value || (both == score_and_value && complement < id_complement)) {
      return false;
    }
    score_and_value = both;
    id_complement = complement;
    return true;
  }
};

// -1 when no thread has seen a token.
__device__ inline int32_t IdOfBest(const Team& team, const BestToken& mine) {
  const uint64_t best = team.Max(mine.score_and_value);
  const uint64_t complement = team.Max(mine.score_and_value == best ? mine.id_complement : 0);
  return best == 0 ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(complement));
}

struct DrawRequest {
  float max;  // of the whole row
  float scale;
  DrawMethod method;
  const NoiseKey& key;
};

template <typename Slice>
__device__ int32_t DrawGumbel(const Team& team, const Slice& slice, const CutIds& cut,
                              const DrawRequest& request) {
  const semantics::Stream stream = semantics::GumbelStream(request.key);
  BestToken best;
  slice.ForEach([&](float x, int id) {
    if (!cut.Keeps(x, id)) return;
    const float g = semantics::Gumbel(semantics::NoiseBits(request.key, stream, id));
    best.See(semantics::LogWeight(x, request.max, request.scale) + g, x, id);
  });
  return IdOfBest(team, best);
}

// The first kept token in the total order; -1 when nothing is kept.
template <typename Slice>
__device__ int32_t FirstKept(const Team& team, const Slice& slice, const CutIds& cut) {
  BestToken first;
  slice.ForEach([&](float x, int id) {
    if (cut.Keeps(x, id)) first.See(0.0f, x, id);
  });
  return IdOfBest(team, first);
}

template <typename Slice>
__device__ int32_t DrawCdf(const Team& team, FindMemory& memory, const Slice& slice,
                           const CutIds& cut, const DrawRequest& request) {
  uint64_t mass = 0;
  slice.ForEach([&](float x, int id) {
    if (cut.Keeps(x, id)) mass += semantics::Weight(x, request.max, request.scale);
  });
  mass = team.Sum(mass);
  if (mass == 0) return FirstKept(team, slice, cut);
  const uint64_t threshold =
      semantics::CdfThreshold(request.key, semantics::CdfStream(request.key), mass);
  const Found found = Find<Amount::kMass>(team, memory, threshold + 1, [&](auto add) {
    slice.ForEach([&](float x, int id) {
      if (!cut.Keeps(x, id)) return;
      add(~static_cast<uint32_t>(id), 1u, semantics::Weight(x, request.max, request.scale));
    });
  });
  return static_cast<int32_t>(~found.key);
}

template <typename Slice>
__device__ int32_t DrawToken(const Team& team, FindMemory& memory, const Slice& slice,
                             const Cut& cut, const DrawRequest& request) {
  const CutIds ids = ResolveTies(team, memory, slice, cut);
  return request.method == DrawMethod::kCdf ? DrawCdf(team, memory, slice, ids, request)
                                            : DrawGumbel(team, slice, ids, request);
}

}  // namespace sluice::cuda
