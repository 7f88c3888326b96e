// Stages 10 to 15 for one row, by definition: from adjusted values to the interval of the total
// order that is kept. rules.h has the order of the rules, and which are on.
#pragma once

#include "semantics/cut.h"
#include "semantics/filters/top_k.h"
#include "semantics/filters/top_p.h"
#include "semantics/filters/typical.h"
#include "semantics/filters/xtc.h"
#include "semantics/rules.h"

namespace sluice::semantics {

// What each filter left, to explain a result. A filter that is off leaves what it
// found.
struct SelectTrace {
  Interval after[kFilters];
  float floor[kFilters];  // of those that keep the tokens from a value on
};

// A sorted row, for ApplyRules.
class SortedSelection {
 public:
  SLUICE_HD SortedSelection(SortedRow row, const SelectParams& params, SelectTrace* trace)
      : row_(row),
        params_(params),
        trace_(trace),
        scale_(ScalesOf(params).filter),
        kept_{0, row.size},
        before_top_k_(kept_) {}

  SLUICE_HD Interval kept() const { return kept_; }

  SLUICE_HD void Greedy() { kept_ = {0, 1}; }
  template <class Floor>
  SLUICE_HD void KeepFrom(const Floor& rule) {
    floor_ = FloorOf(row_, kept_, rule, scale_);
    kept_ = KeepFromFloor(row_, kept_, floor_);
  }
  SLUICE_HD void Typical() { kept_ = semantics::Typical(row_, kept_, params_.typical_p, scale_); }
  SLUICE_HD void BeforeTopK() { before_top_k_ = kept_; }
  SLUICE_HD void TopK() { kept_ = semantics::TopK(row_, kept_, params_.top_k, params_.profile); }
  SLUICE_HD void TopP() {
    const bool joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
    const Interval measured = joint ? before_top_k_ : kept_;
    const Interval by_mass =
        semantics::TopP(row_, measured, params_.top_p, scale_, params_.profile);
    kept_.end = by_mass.end < kept_.end ? by_mass.end : kept_.end;
  }
  SLUICE_HD void Xtc() { kept_ = semantics::Xtc(row_, kept_, params_.xtc_threshold, scale_); }
  SLUICE_HD void After(Filter filter) {
    if (trace_ == nullptr) return;
    trace_->after[static_cast<int>(filter)] = kept_;
    trace_->floor[static_cast<int>(filter)] = floor_;
  }

 private:
  SortedRow row_;
  const SelectParams& params_;
  SelectTrace* trace_;
  float scale_;
  Interval kept_;
  Interval before_top_k_;
  float floor_ = kLowestValue;  // of the last rule that has one
};

SLUICE_HD inline Interval SelectInterval(SortedRow row, const SelectParams& params,
                                         const NoiseKey& key, SelectTrace* trace = nullptr) {
  SortedSelection selection(row, params, trace);
  ApplyRules(RulesOf(params, key), params, selection);
  return selection.kept();
}

// The exact masses of a selection (CutMass): what top-p was measured on, what is kept, and how far
// the boundary of top-p is from moving.
SLUICE_HD inline CutMass MassesOf(SortedRow row, const SelectParams& params,
                                  const SelectTrace& trace) {
  const float scale = ScalesOf(params).filter;
  const bool joint = params.profile.top_k_top_p == TopKTopP::kJoint;
  const Interval measured = trace.after[static_cast<int>(joint ? Filter::kTypical : Filter::kTopK)];
  CutMass mass;
  mass.total = MassOf(row, measured, scale);
  mass.kept = MassOf(row, trace.after[static_cast<int>(Filter::kXtc)], scale);
  if (Has(RulesOf(params), Filter::kTopP)) {
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
