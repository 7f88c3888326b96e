// Stages 10 to 15 for one row on a team of threads: semantics/select.h without sorting. Every rule
// becomes a threshold on the value, found by counting or by integer masses: exact for any row and
// any parameters, in a number of reads that the parameters decide.
//
// This is the way out of every guess, so it makes none itself. The row has no status.
#pragma once

#include "cuda/radix_select.cuh"
#include "semantics/cut.h"
#include "semantics/row_status.h"
#include "semantics/select.h"

namespace sluice::cuda {

inline constexpr int32_t kAllTies = INT32_MAX;

// An interval of the total order by its values: everything between the two, and the first
// `lower_ties` tokens equal to `lower`. `lower` need not be a value of the row when it takes all
// its ties.
struct ValueInterval {
  float above = INFINITY;
  float lower = -INFINITY;
  int32_t lower_ties = 0;

  __device__ bool DropsFromTheTop(float max) const { return above <= max; }

  __device__ bool HasPartOfTies() const { return lower_ties > 0 && lower_ties < kAllTies; }

  // All but the ties of a part.
  __device__ bool Holds(float x) const {
    return x < above && (x > lower || (x == lower && lower_ties == kAllTies));
  }

  __device__ void KeepFrom(float value, int32_t ties) {
    if (value < lower || (value == lower && ties >= lower_ties)) return;
    lower = value;
    lower_ties = ties;
  }
};

// Each query is answered by the Find that takes this Memory. A slice that holds no more than the
// top of the row serves if the Cut is certain to lie in it.
template <class TeamOfRow, class Memory, class Slice>
class RowRules {
 public:
  // whole_mass: of what top-p is measured on, when the slice does not hold all of it; else 0.
  __device__ RowRules(const TeamOfRow& team, Memory& memory, const Slice& slice,
                      const semantics::RowScan& scan, const SelectParams& params,
                      const NoiseKey& key, uint64_t whole_mass = 0)
      : team_(team),
        memory_(memory),
        slice_(slice),
        params_(params),
        key_(key),
        max_(scan.max),
        support_(scan.support),
        whole_mass_(whole_mass),
        scale_(semantics::ScalesOf(params).filter) {}

  // mass: null, or where the first thread writes.
  __device__ Cut Select(CutMass* mass) {
    needs_margin_ = mass != nullptr;
    semantics::ApplyRules(semantics::RulesOf(params_, key_), params_, *this);
    if (mass != nullptr) Report(mass);
    return CutOfKept();
  }

  // The rules, for ApplyRules.

  __device__ void Greedy() { kept_ = {INFINITY, max_, 1}; }

  template <class Floor>
  __device__ void KeepFrom(const Floor& rule) {
    semantics::FloorSums sums;
    if constexpr (Floor::kSums > 0) {
      ForEachIn(kept_,
                [&](float x, uint32_t tokens) { sums.Add(rule.TermsOf(x, max_, scale_), tokens); });
#pragma unroll
      for (int i = 0; i < Floor::kSums; ++i) sums.at[i] = team_.Sum(sums.at[i]);
    }
    const float floor = rule.From(sums, max_, scale_);
    const float largest = kept_.DropsFromTheTop(max_) ? LargestOf(kept_) : max_;
    if (largest < floor) {
      kept_.KeepFrom(largest, 1);  // at least one
    } else {
      kept_.KeepFrom(floor, kAllTies);
    }
  }

  // K by its keys, which are differences of surprise; the two ends by bisection, because surprise
  // never falls as the value falls.
  __device__ void Typical() {
    uint64_t surprise = 0, weights = 0, total = 0;
    ForEachIn(kept_, [&](float x, uint32_t tokens) {
      const float t = semantics::LogWeight(x, max_, scale_);
      const uint64_t w = semantics::WeightOf(t);
      if (w == 0) return;
      surprise += tokens * ((w >> 16) * static_cast<uint64_t>(semantics::Surprise(t)));
      weights += tokens * (w >> 16);
      total += tokens * w;
    });
    const int64_t mean = static_cast<int64_t>(team_.Sum(surprise) / team_.Sum(weights));
    uint64_t target = semantics::TargetMass(params_.typical_p, team_.Sum(total));
    target = target == 0 ? 1 : target;  // at least one
    const Found found = Find<Amount::kMass>(team_, memory_, target, [&](auto add) {
      ForEachIn(kept_, [&](float x, uint32_t tokens) {
        const float t = semantics::LogWeight(x, max_, scale_);
        const uint64_t w = semantics::WeightOf(t);
        if (w == 0) return;
        add(~static_cast<uint32_t>(semantics::TypicalKey(t, mean)), tokens, tokens * w);
      });
    });
    const int64_t key = static_cast<int64_t>(~found.key);
    auto surprise_of = [&](float x) {
      return semantics::Surprise(semantics::LogWeight(x, max_, scale_));
    };
    kept_.KeepFrom(semantics::LeastValue(
                       semantics::kLowestValue, max_,
                       [&](float x) { return WeightOf(x) > 0 && surprise_of(x) <= mean + key; }),
                   kAllTies);
    if (surprise_of(max_) < mean - key) {
      kept_.above = semantics::LeastValue(semantics::kLowestValue, max_,
                                          [&](float x) { return surprise_of(x) < mean - key; });
    }
  }

  __device__ void TopK() {
    if (params_.top_k >= support_) return;
    const uint64_t k = static_cast<uint64_t>(params_.top_k);
    if (k >= CountOf(kept_)) return;
    const Found found = FindValue<Amount::kCount>(kept_, k);
    const bool all = params_.profile.ties == Ties::kAll;
    kept_.KeepFrom(semantics::ValueOfKey(found.key),
                   static_cast<int32_t>(all ? found.count : k - found.count_above));
  }

  __device__ void BeforeTopK() { measured_ = kept_; }

  __device__ void After(semantics::Filter filter) {
    const bool joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
    if (filter == semantics::Filter::kTopK && !joint) measured_ = kept_;
  }

  __device__ void TopP() {
    const uint64_t total = whole_mass_ == 0 ? MassOf(measured_) : whole_mass_;
    const uint64_t target = semantics::TargetMass(params_.top_p, total);
    const uint64_t exclusive = semantics::ExclusiveTarget(target, params_.profile.top_p_boundary);
    uint64_t before = 0, through = total;
    if (exclusive <= total) {
      const Found found = FindValue<Amount::kMass>(measured_, exclusive == 0 ? 1 : exclusive);
      const float value = semantics::ValueOfKey(found.key);
      const uint64_t weight = WeightOf(value);
      const bool all = params_.profile.ties == Ties::kAll;
      const int64_t ties =
          all ? found.count : semantics::TopPTiesKept(found.above, weight, found.count, exclusive);
      kept_.KeepFrom(value, static_cast<int32_t>(ties));
      through = found.above + static_cast<uint64_t>(ties) * weight;
      before = through - weight;
    } else if (needs_margin_) {  // an inclusive boundary on the whole mass
      before = through - WeightOf(SmallestOf(measured_));
    }
    if (needs_margin_) {
      const uint64_t below = target > before ? target - before : before - target;
      const uint64_t above = through > target ? through - target : target - through;
      margin_ = min(below, above);
    }
  }

  __device__ void Xtc() {
    const semantics::uint128_t least = semantics::XtcLeast(params_.xtc_threshold, MassOf(kept_));
    uint64_t counted = 0;
    ForEachIn(kept_, [&](float x, uint32_t tokens) {
      if (semantics::XtcCounts(WeightOf(x), least)) counted += tokens;
    });
    counted = team_.Sum(counted);
    if (counted < 2) return;
    const Found found = FindValue<Amount::kCount>(kept_, counted);
    first_ = semantics::ValueOfKey(found.key);
    ties_dropped_ = static_cast<int32_t>(counted - 1 - found.count_above);
    dropped_ = static_cast<int64_t>(counted) - 1;
  }

 private:
  __device__ uint64_t WeightOf(float x) const { return semantics::Weight(x, max_, scale_); }

  // visit(x, tokens) for the tokens of an interval that are this thread's.
  template <typename Visit>
  __device__ void ForEachIn(const ValueInterval& interval, Visit visit) const {
    slice_.ForEach([&](float x, int) {
      if (interval.Holds(x)) visit(x, uint32_t{1});
    });
    if (interval.HasPartOfTies() && team_.IsFirstThread()) {
      visit(interval.lower, static_cast<uint32_t>(interval.lower_ties));
    }
  }

  __device__ uint64_t CountOf(const ValueInterval& interval) const {
    uint64_t count = 0;
    ForEachIn(interval, [&](float, uint32_t tokens) { count += tokens; });
    return team_.Sum(count);
  }

  __device__ uint64_t MassOf(const ValueInterval& interval) const {
    uint64_t mass = 0;
    ForEachIn(interval, [&](float x, uint32_t tokens) { mass += tokens * WeightOf(x); });
    return team_.Sum(mass);
  }

  __device__ float LargestOf(const ValueInterval& interval) const {
    uint32_t key = 0;
    ForEachIn(interval, [&](float x, uint32_t) { key = max(key, semantics::OrderKey(x)); });
    return semantics::ValueOfKey(static_cast<uint32_t>(team_.Max(key)));
  }

  // The value at which a running amount over the interval reaches the target.
  template <Amount kAmount>
  __device__ Found FindValue(const ValueInterval& interval, uint64_t target) const {
    return Find<kAmount>(team_, memory_, target, [&](auto add) {
      ForEachIn(interval, [&](float x, uint32_t tokens) {
        add(semantics::OrderKey(x), tokens, kAmount == Amount::kMass ? tokens * WeightOf(x) : 0);
      });
    });
  }

  __device__ float SmallestOf(const ValueInterval& interval) const {
    uint32_t key = 0;  // inverted
    ForEachIn(interval, [&](float x, uint32_t) { key = max(key, ~semantics::OrderKey(x)); });
    return semantics::ValueOfKey(~static_cast<uint32_t>(team_.Max(key)));
  }

  __device__ Cut CutOfKept() const {
    Cut cut;
    cut.count = static_cast<int32_t>(static_cast<int64_t>(CountOf(kept_)) - dropped_);
    if (kept_.HasPartOfTies()) {
      cut.lower = kept_.lower + 0.0f;
      cut.ties_kept = kept_.lower_ties;
    } else {
      cut.lower = SmallestOf(kept_);
      uint64_t ties = 0;
      slice_.ForEach([&](float x, int) { ties += x == cut.lower ? 1 : 0; });
      cut.ties_kept = static_cast<int32_t>(team_.Sum(ties));
    }
    if (dropped_ > 0) {
      cut.upper = first_;
      cut.ties_dropped = ties_dropped_;
    } else if (kept_.DropsFromTheTop(max_)) {
      cut.upper = LargestOf(kept_);
    }
    return cut;
  }

  __device__ void Report(CutMass* mass) const {
    CutMass report;
    report.total = MassOf(measured_);
    report.kept = MassOf(kept_);
    report.margin = margin_;
    if (dropped_ > 0) {
      ValueInterval top = kept_;
      top.KeepFrom(first_, ties_dropped_);
      report.kept -= MassOf(top);
    }
    if (team_.IsFirstThread()) *mass = report;
  }

  const TeamOfRow& team_;
  Memory& memory_;
  const Slice& slice_;
  const SelectParams& params_;
  const NoiseKey& key_;
  float max_;  // of the row
  int64_t support_;
  uint64_t whole_mass_;
  float scale_;
  ValueInterval kept_;
  ValueInterval measured_;  // by top-p
  bool needs_margin_ = false;
  uint64_t margin_ = UINT64_MAX;
  // XTC drops this number of tokens from the top: up to a value, and of its ties the first ones.
  int64_t dropped_ = 0;
  float first_ = 0.0f;
  int32_t ties_dropped_ = 0;
};

}  // namespace sluice::cuda
