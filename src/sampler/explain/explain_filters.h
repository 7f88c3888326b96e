// Explain: stages 10 to 15 of a row that has no status. What they kept is in the SelectTrace of the
// definition; here is what each compared for one token.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "sampler/explain/explain_compare.h"
#include "semantics/select_row.h"

namespace sluice {

inline constexpr int kFirstFilter = static_cast<int>(Stage::kGreedy);
static_assert(static_cast<int>(Stage::kXtc) - kFirstFilter + 1 == semantics::kFilters);

constexpr Stage StageOf(semantics::Filter filter) {
  return static_cast<Stage>(kFirstFilter + static_cast<int>(filter));
}

inline bool IsOn(semantics::Filter filter, const SelectParams& params) {
  return Has(semantics::RulesOf(params), filter);
}

class FilterReports {
  using Filter = semantics::Filter;
  using Interval = semantics::Interval;
  using Token = semantics::Token;

 public:
  FilterReports(const semantics::SelectedRow& selected, const SelectParams& params)
      : row_(selected.sorted),
        trace_(selected.trace),
        params_(params),
        scale_(semantics::ScalesOf(params).filter) {
    mass_before_.push_back(0);
    for (int64_t i = 0; i < row_.size; ++i) mass_before_.push_back(mass_before_.back() + Weight(i));
    if (IsOn(Filter::kTopNSigma, params)) {
      sigma_bound_ = semantics::SigmaBoundOf(row_, Before(Filter::kTopNSigma), params.top_n_sigma);
    }
    if (IsOn(Filter::kTypical, params)) {
      mean_ = semantics::TypicalMomentsOf(row_, Before(Filter::kTypical), scale_).mean;
    }
  }

  // Every filter but what it did to a token.
  void Count(Explanation& e) const {
    for (int f = 0; f < semantics::kFilters; ++f) {
      StageReport& report = e[StageOf(static_cast<Filter>(f))];
      report.tokens_left = trace_.after[f].end - trace_.after[f].begin;
      report.mass_left = Ratio(Mass(trace_.after[f]), mass_before_.back());
    }
  }

  void Trace(Explanation& e) const {
    const Token* last = row_.tokens + row_.size;
    const int64_t place =
        std::lower_bound(row_.tokens, last, Token{e.adjusted, e.id}, semantics::Before) -
        row_.tokens;
    e.rank = place + 1;
    e.probability = Ratio(Weight(place), mass_before_.back());
    for (int f = 0; f < semantics::kFilters; ++f) {
      const auto filter = static_cast<Filter>(f);
      StageReport& report = e[StageOf(filter)];
      const Interval after = trace_.after[f];
      report.is_left = after.begin <= place && place < after.end;
      if (report.is_on) CompareBy(filter, place, report);
      if (report.is_left) continue;
      e.dropped_by = StageOf(filter);
      return;
    }
    e.is_kept = true;
  }

 private:
  Interval Before(Filter filter) const {
    const int f = static_cast<int>(filter);
    return f == 0 ? Interval{0, row_.size} : trace_.after[f - 1];
  }
  uint64_t Weight(int64_t i) const {
    return semantics::Weight(row_.tokens[i].x, row_.Max(), scale_);
  }
  uint64_t Mass(Interval kept) const {
    return mass_before_[static_cast<size_t>(kept.end)] -
           mass_before_[static_cast<size_t>(kept.begin)];
  }

  // The token by which top-k and top-p judge the one at `place`: itself, or in profiles that keep
  // all ties the first of its value.
  int64_t JudgedBy(int64_t place, Interval among) const {
    if (params_.profile.ties == Ties::kLowestId) return place;
    while (place > among.begin && row_.tokens[place - 1].x == row_.tokens[place].x) --place;
    return place;
  }

  void CompareBy(Filter filter, int64_t place, StageReport& report) const {
    const Interval before = Before(filter);
    const auto rank = static_cast<double>(place - before.begin + 1);
    switch (filter) {
      case Filter::kGreedy:
        return Compare(report, Comparison::kAtMost, rank, 1);
      case Filter::kMinP:
      case Filter::kMinPLast:
        return CompareMinP(place, report);
      case Filter::kTopNSigma:
        return CompareSigma(place, report);
      case Filter::kTypical:
        return CompareTypical(place, report);
      case Filter::kTopK:
        return Compare(report, Comparison::kAtMost,
                       static_cast<double>(JudgedBy(place, before) - before.begin + 1),
                       static_cast<double>(params_.top_k));
      case Filter::kTopP:
        return CompareTopP(place, report);
      case Filter::kXtc:
        return CompareXtc(place, report);
      default:
        return CompareFloor(filter, place, report);
    }
  }

  // Of a rule with a floor that has no comparison of its own.
  void CompareFloor(Filter filter, int64_t place, StageReport& report) const {
    const float x = row_.tokens[place].x;
    const float floor = trace_.floor[static_cast<int>(filter)];
    Compare(report, Comparison::kAtLeast, static_cast<double>(x), static_cast<double>(floor));
    report.is_exempt = report.is_left && x < floor;
  }

  void CompareMinP(int64_t place, StageReport& report) const {
    const uint64_t least = semantics::Fixed40(params_.min_p);
    const bool holds = Weight(place) >= least;
    Compare(report, Comparison::kAtLeast, Ratio(Weight(place), semantics::kFullWeight),
            Ratio(least, semantics::kFullWeight));
    report.is_exempt = report.is_left && !holds;
  }

  // In standard deviations as the rule has them: at its bound, in its fixed point, they are
  // n_sigma.
  void CompareSigma(int64_t place, StageReport& report) const {
    const uint64_t e = semantics::SigmaDistance(row_.tokens[place].x, row_.Max());
    const auto n_sigma = static_cast<double>(params_.top_n_sigma);
    const double quantity =
        e == 0 ? 0.0 : n_sigma * static_cast<double>(e) / static_cast<double>(sigma_bound_);
    Compare(report, Comparison::kAtMost, quantity, n_sigma);
  }

  void CompareTypical(int64_t place, StageReport& report) const {
    constexpr double kUnit = 4096.0;  // of Surprise
    const Interval after = trace_.after[static_cast<int>(Filter::kTypical)];
    const int64_t largest = std::max(TypicalKey(after.begin), TypicalKey(after.end - 1));
    // A token of weight 0 is never kept; its surprise may be too large for an integer.
    const double t =
        static_cast<double>(semantics::LogWeight(row_.tokens[place].x, row_.Max(), scale_));
    const double quantity = Weight(place) > 0 ? static_cast<double>(TypicalKey(place)) / kUnit
                                              : std::abs(-t - static_cast<double>(mean_) / kUnit);
    Compare(report, Comparison::kAtMost, quantity, static_cast<double>(largest) / kUnit);
  }

  int64_t TypicalKey(int64_t place) const {
    return semantics::TypicalKey(semantics::LogWeight(row_.tokens[place].x, row_.Max(), scale_),
                                 mean_);
  }

  void CompareTopP(int64_t place, StageReport& report) const {
    const bool is_joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
    const bool is_inclusive = params_.profile.top_p_boundary == TopPBoundary::kInclusive;
    const Interval measured = Before(is_joint ? Filter::kTopK : Filter::kTopP);
    const uint64_t total = Mass(measured);
    const uint64_t target = semantics::TargetMass(params_.top_p, total);
    const uint64_t before = Mass({measured.begin, JudgedBy(place, measured)});
    const bool holds = semantics::TopPKeeps(before, target, params_.profile.top_p_boundary);
    CompareShares(report, is_inclusive ? Comparison::kAtMost : Comparison::kBelow,
                  Ratio(before, total), Ratio(target, total), holds);
    report.is_exempt = report.is_left && !holds;
  }

  void CompareXtc(int64_t place, StageReport& report) const {
    const uint64_t total = Mass(Before(Filter::kXtc));
    const bool counts =
        semantics::XtcCounts(Weight(place), semantics::XtcLeast(params_.xtc_threshold, total));
    // The least share that counts, as XtcLeast rounds it.
    const auto least =
        static_cast<double>(static_cast<uint64_t>(semantics::XtcLeast(params_.xtc_threshold, 1)));
    CompareShares(report, Comparison::kBelow, Ratio(Weight(place), total), least * 0x1p-32,
                  !counts);
    report.is_exempt = report.is_left && counts;
  }

  semantics::SortedRow row_;
  const semantics::SelectTrace& trace_;
  const SelectParams& params_;
  float scale_;
  std::vector<uint64_t> mass_before_;  // of the tokens before each, in the total order
  uint64_t sigma_bound_ = 0;
  int64_t mean_ = 0;  // of typical
};

}  // namespace sluice
