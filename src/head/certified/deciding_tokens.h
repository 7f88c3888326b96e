// Which tokens decide a row's kept set and draw: what a certified head has to know of it.
#pragma once

#include <cstdint>

#include "semantics/nucleus.h"
#include "sluice/params.hpp"

namespace sluice {

enum class Decides : uint8_t {
  kFirst,    // the first k in the total order
  kLikely,   // all that min-p keeps
  kSoftmax,  // all, by a Gumbel draw
  kMass,     // all, by their mass
};

// Every rule behind the first that bounds the set looks at no other token: top-p is measured on the
// survivors of top-k (unless both are tested jointly), XTC on what is kept.
SLUICE_HD inline Decides DecidingTokens(const SelectParams& params, DrawMethod method,
                                        int64_t vocab) {
  if (semantics::IsGreedy(params)) return Decides::kFirst;
  if (params.top_n_sigma > 0 || params.typical_p < 1) return Decides::kMass;
  const Profile& profile = params.profile;
  const bool has_top_p = params.top_p < 1;
  const bool is_likely_first = params.min_p > 0 && profile.min_p_stage == MinPStage::kBeforeTopK;
  const bool is_joint = has_top_p && profile.top_k_top_p == TopKTopP::kJoint;
  if (params.top_k > 0 && params.top_k < vocab && !is_joint) return Decides::kFirst;
  if (is_likely_first || (params.min_p > 0 && !has_top_p)) return Decides::kLikely;
  const bool is_whole = !has_top_p && params.xtc_probability == 0;
  return is_whole && method == DrawMethod::kGumbel ? Decides::kSoftmax : Decides::kMass;
}

// The same where the noise of the row is known: XTC whose coin does not fall is no rule.
inline Decides DecidingTokens(SelectParams params, const NoiseKey& key, DrawMethod method,
                              int64_t vocab) {
  if (!semantics::XtcDrops(params, key)) params.xtc_probability = 0;
  return DecidingTokens(params, method, vocab);
}

// Of kMass: top-p decides, so the first tokens may, if the mass of the others is known well enough.
SLUICE_HD inline bool IsNucleus(const SelectParams& params) {
  return params.top_p < 1 && !(params.top_n_sigma > 0) && !(params.typical_p < 1);
}

}  // namespace sluice
