// Stages 10 to 15 for one row: from adjusted values to the interval of the total order that is
// kept.
//
//   10 greedy: T == 0 keeps the first token, done
//   12 min-p, top-n-sigma, typical
//   13 top-k          14 top-p on the survivors (or both on the survivors of 12: joint)
//   (min-p here instead, in profiles that have it last)
//   15 XTC
//
// A token that one rule dropped does not exist for the rules behind it.
#pragma once

#include "semantics/cut.h"
#include "semantics/min_p.h"
#include "semantics/noise.h"
#include "semantics/temperature.h"
#include "semantics/top_k.h"
#include "semantics/top_n_sigma.h"
#include "semantics/top_p.h"
#include "semantics/typical.h"
#include "semantics/xtc.h"

namespace sluice::semantics {

enum class Filter : uint8_t { kGreedy, kMinP, kTopNSigma, kTypical, kTopK, kTopP, kMinPLast, kXtc };
inline constexpr int kFilters = 8;

// What each filter left, for whoever wants to explain a result. A filter that is off leaves what it
// found.
struct SelectTrace {
  Interval after[kFilters];
};

SLUICE_HD inline Interval SelectInterval(SortedRow row, const SelectParams& params,
                                         const NoiseKey& key, SelectTrace* trace = nullptr) {
  const Profile& profile = params.profile;
  const float scale = ScalesOf(params).filter;
  Interval kept{0, row.size};
  auto leaves = [&](Filter filter) {
    if (trace != nullptr) trace->after[static_cast<int>(filter)] = kept;
  };

  if (IsGreedy(params)) kept = {0, 1};
  leaves(Filter::kGreedy);
  const bool filters = !IsGreedy(params);

  if (filters && params.min_p > 0 && profile.min_p_stage == MinPStage::kBeforeTopK) {
    kept = MinP(row, kept, params.min_p, scale);
  }
  leaves(Filter::kMinP);
  if (filters && params.top_n_sigma > 0) kept = TopNSigma(row, kept, params.top_n_sigma);
  leaves(Filter::kTopNSigma);
  if (filters && params.typical_p < 1) kept = Typical(row, kept, params.typical_p, scale);
  leaves(Filter::kTypical);

  const Interval before_top_k = kept;
  if (filters) kept = TopK(row, kept, params.top_k, profile);
  leaves(Filter::kTopK);
  if (filters && params.top_p < 1) {
    const bool joint = profile.top_k_top_p == TopKTopP::kJoint;
    const Interval by_mass = TopP(row, joint ? before_top_k : kept, params.top_p, scale, profile);
    kept.end = by_mass.end < kept.end ? by_mass.end : kept.end;
  }
  leaves(Filter::kTopP);

  if (filters && params.min_p > 0 && profile.min_p_stage == MinPStage::kLast) {
    kept = MinP(row, kept, params.min_p, scale);
  }
  leaves(Filter::kMinPLast);
  if (filters && params.xtc_probability > 0 && XtcCoinFalls(key, params.xtc_probability)) {
    kept = Xtc(row, kept, params.xtc_threshold, scale);
  }
  leaves(Filter::kXtc);
  return kept;
}

// The exact masses behind a selection (CutMass): what top-p was measured on, what is kept, and how
// far the boundary of top-p is from moving.
SLUICE_HD inline CutMass MassesOf(SortedRow row, const SelectParams& params,
                                  const SelectTrace& trace) {
  const float scale = ScalesOf(params).filter;
  const bool joint = params.profile.top_k_top_p == TopKTopP::kJoint;
  const Interval measured = trace.after[static_cast<int>(joint ? Filter::kTypical : Filter::kTopK)];
  CutMass mass;
  mass.total = MassOf(row, measured, scale);
  mass.kept = MassOf(row, trace.after[static_cast<int>(Filter::kXtc)], scale);
  if (!IsGreedy(params) && params.top_p < 1) {
    const uint64_t target = TargetMass(params.top_p, mass.total);
    const Interval nucleus = TopP(row, measured, params.top_p, scale, params.profile);
    const uint64_t through = MassOf(row, nucleus, scale);
    const uint64_t before = through - Weight(row.tokens[nucleus.end - 1].x, row.Max(), scale);
    const uint64_t below = target > before ? target - before : before - target;
    const uint64_t above = through > target ? through - target : target - through;
    mass.margin = below < above ? below : above;
  }
  return mass;
}

}  // namespace sluice::semantics
