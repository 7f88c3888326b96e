// Verifying draft tokens against the target (modes `match` and `reject`).
//
// match: accept iff the draft is the token that the ordinary draw gives, so that output with and
// without drafts is identical. reject: accept iff P * 2^32 >= (U + 1) * Q, else draw from the
// positive part of P - Q; the law is the target's. Probabilities are integers in units of 2^-40.
//
// Several drafts that follow one node of a tree are tried in order: when one is rejected, the next
// one is tried against the positive part of P - Q, measured against its own sum.
#pragma once

#include <span>

#include "semantics/draw/draw.h"
#include "semantics/placed_cut.h"

namespace sluice::semantics {

// P = (W * floor(2^103 / Z)) >> 63, 0 for a set without mass. 2^103 / Z can take 104 bits, W is at
// most Z, so the product fits.
SLUICE_HD inline uint64_t Probability40(uint64_t weight, uint64_t mass) {
  if (mass == 0) return 0;
  const uint128_t reciprocal = (static_cast<uint128_t>(1) << 103) / mass;
  return static_cast<uint64_t>((reciprocal * weight) >> 63);
}

// U: the 32-bit word of the acceptance stream. A draft that its own distribution does not contain
// (Q = 0) is never accepted: P would be 0 too for a masked token.
SLUICE_HD inline bool AcceptsDraft(uint64_t p, uint64_t q, uint32_t u) {
  return q > 0 && (static_cast<uint128_t>(p) << 32) >= static_cast<uint128_t>(uint64_t{u} + 1) * q;
}

// A greedy row accepts its argmax, whatever the draft was drawn from.
SLUICE_HD inline bool AcceptsGreedyDraft(int32_t argmax, int32_t draft) { return draft == argmax; }

SLUICE_HD inline uint64_t PositivePart(uint64_t p, uint64_t q) { return p > q ? p - q : 0; }

// What a rejected draft leaves of P for the next one that follows its node. mass: that of the
// positive part.
SLUICE_HD inline uint64_t Left40(uint64_t p, uint64_t q, uint64_t mass) {
  return Probability40(PositivePart(p, q), mass);
}

// How many drafts may be tried at a node.
inline constexpr int kMostTries = 64;

// U of the n-th draft that is tried at a node.
SLUICE_HD inline uint32_t AcceptanceOfTry(const NoiseKey& key, uint32_t n) {
  return NoiseBlock(key, Stream::kAcceptance, n >> 2, 0).Word(n & 3);
}

// A distribution of the target or of a draft model.
class CutProbabilities {
 public:
  SLUICE_HD CutProbabilities(const Row& row, const Cut& cut, float m, float scale)
      : row_(row),
        cut_(PlaceCut(row, cut)),
        m_(m),
        scale_(scale),
        mass_(KeptMass(row, cut, m, scale)) {}

  SLUICE_HD uint64_t operator()(int64_t id) const {
    const float x = row_[id];
    const bool is_kept = cut_.Keeps(x, static_cast<int32_t>(id));
    return is_kept ? Probability40(Weight(x, m_, scale_), mass_) : 0;
  }

 private:
  Row row_;
  PlacedCut cut_;
  float m_;
  float scale_;
  uint64_t mass_;
};

// fp32 probabilities as some other draft gives them.
class GivenProbabilities {
 public:
  SLUICE_HD explicit GivenProbabilities(const float* q) : q_(q) {}
  SLUICE_HD uint64_t operator()(int64_t id) const { return Fixed40(q_[id]); }

 private:
  const float* q_;
};

// A draft token without probabilities: all mass on it.
class CertainDraft {
 public:
  SLUICE_HD explicit CertainDraft(int32_t id) : id_(id) {}
  SLUICE_HD uint64_t operator()(int64_t id) const { return id == id_ ? kFullWeight : 0; }

 private:
  int32_t id_;
};

// The rest of P after the drafts that were rejected at a node.
template <typename P, typename Q>
class LeftProbabilities {
 public:
  struct Rejected {
    Q q;
    uint64_t mass;
  };
  SLUICE_HD LeftProbabilities(const P& p, std::span<const Rejected> rejected)
      : p_(p), rejected_(rejected) {}

  SLUICE_HD uint64_t operator()(int64_t id) const {
    uint64_t left = p_(id);
    for (const Rejected& one : rejected_) left = Left40(left, one.q(id), one.mass);
    return left;
  }

 private:
  P p_;
  std::span<const Rejected> rejected_;
};

template <typename P, typename Q>
SLUICE_HD inline uint64_t PositiveMass(int64_t vocab, const P& p, const Q& q) {
  uint64_t mass = 0;
  for (int64_t id = 0; id < vocab; ++id) mass += PositivePart(p(id), q(id));
  return mass;
}

// The token after the last rejection: a cdf draw from the positive part of P - Q in id order, or
// -1 when that is empty (then it is the first kept token of the target in the total order).
template <typename P, typename Q>
SLUICE_HD inline int32_t DrawRecovered(int64_t vocab, const P& p, const Q& q, const NoiseKey& key) {
  const uint64_t mass = PositiveMass(vocab, p, q);
  if (mass == 0) return -1;
  const uint64_t threshold = CdfThreshold(key, Stream::kRecovered, mass);
  uint64_t running = 0;
  for (int64_t id = 0; id < vocab; ++id) {
    running += PositivePart(p(id), q(id));
    if (running > threshold) return static_cast<int32_t>(id);
  }
  return -1;  // not reached: the threshold is below the mass
}

}  // namespace sluice::semantics
