// Verifying draft tokens against the target (modes `match` and `reject`).
//
// match: accept iff the draft is the token that the ordinary draw gives, so that output with and
// without drafts is identical. reject: accept iff P * 2^32 >= (U + 1) * Q, else draw from the
// positive part of P - Q; the law is the target's. Probabilities are integers in units of 2^-40.
#pragma once

#include "semantics/draw.h"

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

// A distribution of the target or of a draft model, token by token in id order. Every token must be
// asked about.
class CutProbabilities {
 public:
  SLUICE_HD CutProbabilities(const Row& row, const Cut& cut, float m, float scale)
      : row_(row), walk_(cut), m_(m), scale_(scale), mass_(KeptMass(row, cut, m, scale)) {}

  SLUICE_HD uint64_t operator()(int64_t id) {
    const float x = row_[id];
    return walk_.Keeps(x) ? Probability40(Weight(x, m_, scale_), mass_) : 0;
  }

 private:
  Row row_;
  CutWalk walk_;
  float m_;
  float scale_;
  uint64_t mass_;
};

// fp32 probabilities as some other draft gives them.
class GivenProbabilities {
 public:
  SLUICE_HD explicit GivenProbabilities(const float* q) : q_(q) {}
  SLUICE_HD uint64_t operator()(int64_t id) { return Fixed40(q_[id]); }

 private:
  const float* q_;
};

// A draft token without probabilities: all mass on it.
class CertainDraft {
 public:
  SLUICE_HD explicit CertainDraft(int32_t id) : id_(id) {}
  SLUICE_HD uint64_t operator()(int64_t id) { return id == id_ ? kFullWeight : 0; }

 private:
  int32_t id_;
};

template <typename P, typename Q>
SLUICE_HD inline bool AcceptsDraft(int64_t vocab, P p, Q q, int32_t draft, const NoiseKey& key) {
  uint64_t p_draft = 0;
  uint64_t q_draft = 0;
  for (int64_t id = 0; id < vocab; ++id) {
    const uint64_t p_id = p(id);
    const uint64_t q_id = q(id);
    if (id == draft) {
      p_draft = p_id;
      q_draft = q_id;
    }
  }
  return AcceptsDraft(p_draft, q_draft, Uniform32(key, Stream::kAcceptance));
}

// The token behind a rejection: a cdf draw from the positive part of P - Q in id order, or -1 when
// that is empty (then it is the first kept token of the target in the total order).
template <typename P, typename Q>
SLUICE_HD inline int32_t DrawRecovered(int64_t vocab, P p, Q q, const NoiseKey& key) {
  P p_again = p;
  Q q_again = q;
  uint64_t mass = 0;
  for (int64_t id = 0; id < vocab; ++id) mass += PositivePart(p(id), q(id));
  if (mass == 0) return -1;
  const uint64_t threshold = CdfThreshold(key, Stream::kRecovered, mass);
  uint64_t running = 0;
  for (int64_t id = 0; id < vocab; ++id) {
    running += PositivePart(p_again(id), q_again(id));
    if (running > threshold) return static_cast<int32_t>(id);
  }
  return -1;  // not reached: the threshold is below the mass
}

}  // namespace sluice::semantics
