// Stage 16: one token from a Cut.
#pragma once

#include "semantics/cut.h"
#include "semantics/draw/noise.h"
#include "semantics/widen.h"

namespace sluice::semantics {

// Gumbel: the kept token with the largest fl(t + g), ties by the total order. The ids of a row (or
// shard of a row) start at first_id.
struct Winner {
  float score;
  Token token;  // id -1: no token yet
};

SLUICE_HD inline bool Beats(const Winner& a, const Winner& b) {
  if (b.token.id < 0 || a.token.id < 0) return a.token.id >= 0;
  return a.score > b.score || (a.score == b.score && Before(a.token, b.token));
}

// m and scale: those of the whole row, the scale of the draw.
SLUICE_HD inline Winner DrawGumbel(const Row& row, const Cut& cut, float m, float scale,
                                   const NoiseKey& key, int32_t first_id = 0) {
  Winner best{0.0f, {0.0f, -1}};
  CutWalk walk(cut);
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    if (!walk.Keeps(x)) continue;
    const int32_t id = first_id + static_cast<int32_t>(i);
    const float g = Gumbel(NoiseBits(key, GumbelStream(key), id));
    const Winner candidate{LogWeight(x, m, scale) + g, {x, id}};
    if (Beats(candidate, best)) best = candidate;
  }
  return best;
}

// cdf: the first kept token in id order at which the running mass exceeds (U * mass) / 2^64. A set
// of mass 0 (all of it 40 octaves below the maximum, which XTC or typical dropped) gives its first
// token in the total order.
SLUICE_HD inline uint64_t CdfThreshold(const NoiseKey& key, Stream stream, uint64_t mass) {
  return static_cast<uint64_t>((static_cast<uint128_t>(Uniform64(key, stream)) * mass) >> 64);
}

SLUICE_HD inline uint64_t KeptMass(const Row& row, const Cut& cut, float m, float scale) {
  uint64_t mass = 0;
  CutWalk walk(cut);
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    if (walk.Keeps(x)) mass += Weight(x, m, scale);
  }
  return mass;
}

SLUICE_HD inline int32_t FirstKept(const Row& row, const Cut& cut) {
  Token first{0.0f, -1};
  CutWalk walk(cut);
  for (int64_t i = 0; i < row.size; ++i) {
    const Token token{row[i], static_cast<int32_t>(i)};
    if (walk.Keeps(token.x) && (first.id < 0 || Before(token, first))) first = token;
  }
  return first.id;
}

SLUICE_HD inline int32_t DrawCdf(const Row& row, const Cut& cut, float m, float scale,
                                 const NoiseKey& key) {
  const uint64_t mass = KeptMass(row, cut, m, scale);
  if (mass == 0) return FirstKept(row, cut);
  const uint64_t threshold = CdfThreshold(key, CdfStream(key), mass);
  uint64_t running = 0;
  CutWalk walk(cut);
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    if (!walk.Keeps(x)) continue;
    running += Weight(x, m, scale);
    if (running > threshold) return static_cast<int32_t>(i);
  }
  return -1;  // not reached: the threshold is below the mass
}

SLUICE_HD inline int32_t DrawToken(const Row& row, const Cut& cut, float m, float scale,
                                   DrawMethod method, const NoiseKey& key) {
  return method == DrawMethod::kCdf ? DrawCdf(row, cut, m, scale, key)
                                    : DrawGumbel(row, cut, m, scale, key).token.id;
}

}  // namespace sluice::semantics
