// Stages 10 to 15 for one row on a team of threads: semantics/select.h without sorting. Every rule
// becomes a threshold on the value, found by counting or by integer masses: exact for any row and
// any parameters, in a number of reads that the parameters decide.
//
// This is the way out of every guess, so it makes none itself. The row has no status.
#pragma once

#include "cuda/find.cuh"
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

// What is asked is answered by the Find that takes this Memory. A slice that holds no more than the
// top of the row serves when the caller knows that the Cut lies in it.
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
    const Profile& profile = params_.profile;
    ValueInterval kept;
    if (semantics::IsGreedy(params_)) {
      kept = {INFINITY, max_, 1};
      if (mass != nullptr) Report(mass, kept, 0, UINT64_MAX, kept, 0.0f, 0);
      return CutOf(kept, 0.0f, 0);
    }
    const bool min_p_first = profile.min_p_stage == MinPStage::kBeforeTopK;
    if (params_.min_p > 0 && min_p_first) ApplyMinP(kept);
    if (params_.top_n_sigma > 0) ApplyTopNSigma(kept);
    if (params_.typical_p < 1) ApplyTypical(kept);

    const ValueInterval before_top_k = kept;
    ApplyTopK(kept);
    const bool joint = profile.top_k_top_p == TopKTopP::kJoint;
    const ValueInterval measured = joint ? before_top_k : kept;
    uint64_t margin = UINT64_MAX;
    if (params_.top_p < 1) ApplyTopP(measured, kept, mass != nullptr ? &margin : nullptr);
    if (params_.min_p > 0 && !min_p_first) ApplyMinP(kept);

    float first = 0.0f;  // XTC: the first kept value, and how many of its ties are dropped
    int64_t dropped = 0;
    int32_t ties_dropped = 0;
    if (params_.xtc_probability > 0 && semantics::XtcCoinFalls(key_, params_.xtc_probability)) {
      dropped = FindXtc(kept, first, ties_dropped);
    }
    if (mass != nullptr) Report(mass, measured, dropped, margin, kept, first, ties_dropped);
    return CutOf(kept, first, dropped, ties_dropped);
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

  __device__ void ApplyMinP(ValueInterval& kept) const {
    const float least = semantics::MinPThreshold(params_.min_p, max_, scale_);
    const float largest = kept.DropsFromTheTop(max_) ? LargestOf(kept) : max_;
    if (largest < least) {
      kept.KeepFrom(largest, 1);  // at least one
    } else {
      kept.KeepFrom(least, kAllTies);
    }
  }

  __device__ void ApplyTopNSigma(ValueInterval& kept) const {
    uint64_t count = 0, sum = 0, squares = 0;
    ForEachIn(kept, [&](float x, uint32_t tokens) {
      const uint64_t e = semantics::SigmaDistance(x, max_);
      count += tokens;
      sum += tokens * e;
      squares += tokens * (e * e);
    });
    const uint64_t bound = semantics::SigmaBound(team_.Sum(count), team_.Sum(sum),
                                                 team_.Sum(squares), params_.top_n_sigma);
    kept.KeepFrom(semantics::SigmaThreshold(bound, max_), kAllTies);
  }

  // K by its keys, which are differences of surprise; the two ends by bisection, because surprise
  // never falls as the value falls.
  __device__ void ApplyTypical(ValueInterval& kept) const {
    uint64_t surprise = 0, weights = 0, total = 0;
    ForEachIn(kept, [&](float x, uint32_t tokens) {
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
      ForEachIn(kept, [&](float x, uint32_t tokens) {
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
    kept.KeepFrom(semantics::LeastValue(
                      semantics::kLowestValue, max_,
                      [&](float x) { return WeightOf(x) > 0 && surprise_of(x) <= mean + key; }),
                  kAllTies);
    if (surprise_of(max_) < mean - key) {
      kept.above = semantics::LeastValue(semantics::kLowestValue, max_,
                                         [&](float x) { return surprise_of(x) < mean - key; });
    }
  }

  __device__ void ApplyTopK(ValueInterval& kept) const {
    if (params_.top_k <= 0 || params_.top_k >= support_) return;
    const uint64_t k = static_cast<uint64_t>(params_.top_k);
    if (k >= CountOf(kept)) return;
    const Found found = FindValue<Amount::kCount>(kept, k);
    const bool all = params_.profile.ties == Ties::kAll;
    kept.KeepFrom(semantics::ValueOfKey(found.key),
                  static_cast<int32_t>(all ? found.count : k - found.count_above));
  }

  // margin: null, or where it is wanted; the same in all threads.
  __device__ void ApplyTopP(const ValueInterval& measured, ValueInterval& kept,
                            uint64_t* margin) const {
    const uint64_t total = whole_mass_ == 0 ? MassOf(measured) : whole_mass_;
    const uint64_t target = semantics::TargetMass(params_.top_p, total);
    const uint64_t exclusive = semantics::ExclusiveTarget(target, params_.profile.top_p_boundary);
    uint64_t before = 0, through = total;
    if (exclusive <= total) {
      const Found found = FindValue<Amount::kMass>(measured, exclusive == 0 ? 1 : exclusive);
      const float value = semantics::ValueOfKey(found.key);
      const uint64_t weight = WeightOf(value);
      const bool all = params_.profile.ties == Ties::kAll;
      const int64_t ties =
          all ? found.count : semantics::TopPTiesKept(found.above, weight, found.count, exclusive);
      kept.KeepFrom(value, static_cast<int32_t>(ties));
      through = found.above + static_cast<uint64_t>(ties) * weight;
      before = through - weight;
    } else if (margin != nullptr) {  // an inclusive boundary on the whole mass
      before = through - WeightOf(SmallestOf(measured));
    }
    if (margin != nullptr) {
      const uint64_t below = target > before ? target - before : before - target;
      const uint64_t above = through > target ? through - target : target - through;
      *margin = min(below, above);
    }
  }

  __device__ float SmallestOf(const ValueInterval& interval) const {
    uint32_t key = 0;  // inverted
    ForEachIn(interval, [&](float x, uint32_t) { key = max(key, ~semantics::OrderKey(x)); });
    return semantics::ValueOfKey(~static_cast<uint32_t>(team_.Max(key)));
  }

  // The number of tokens that XTC drops from the top.
  __device__ int64_t FindXtc(const ValueInterval& kept, float& first, int32_t& ties_dropped) const {
    const semantics::uint128_t least = semantics::XtcLeast(params_.xtc_threshold, MassOf(kept));
    uint64_t counted = 0;
    ForEachIn(kept, [&](float x, uint32_t tokens) {
      if (semantics::XtcCounts(WeightOf(x), least)) counted += tokens;
    });
    counted = team_.Sum(counted);
    if (counted < 2) return 0;
    const Found found = FindValue<Amount::kCount>(kept, counted);
    first = semantics::ValueOfKey(found.key);
    ties_dropped = static_cast<int32_t>(counted - 1 - found.count_above);
    return static_cast<int64_t>(counted) - 1;
  }

  // The Cut of an interval whose first `dropped` tokens are dropped, up to those before `first`.
  __device__ Cut CutOf(const ValueInterval& kept, float first, int64_t dropped,
                       int32_t ties_dropped = 0) const {
    Cut cut;
    cut.count = static_cast<int32_t>(static_cast<int64_t>(CountOf(kept)) - dropped);
    if (kept.HasPartOfTies()) {
      cut.lower = kept.lower + 0.0f;
      cut.ties_kept = kept.lower_ties;
    } else {
      cut.lower = SmallestOf(kept);
      uint64_t ties = 0;
      slice_.ForEach([&](float x, int) { ties += x == cut.lower ? 1 : 0; });
      cut.ties_kept = static_cast<int32_t>(team_.Sum(ties));
    }
    if (dropped > 0) {
      cut.upper = first;
      cut.ties_dropped = ties_dropped;
    } else if (kept.DropsFromTheTop(max_)) {
      cut.upper = LargestOf(kept);
    }
    return cut;
  }

  __device__ void Report(CutMass* mass, const ValueInterval& measured, int64_t dropped,
                         uint64_t margin, const ValueInterval& kept, float first,
                         int32_t ties_dropped) const {
    CutMass report;
    report.total = MassOf(measured);
    report.kept = MassOf(kept);
    report.margin = margin;
    if (dropped > 0) {
      ValueInterval top = kept;
      top.KeepFrom(first, ties_dropped);
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
};

}  // namespace sluice::cuda
