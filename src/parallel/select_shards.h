// Selection on a sharded row: the same rules as semantics/select.h, with every walk over sorted
// tokens replaced by a bisection over sums. The two share the arithmetic and nothing else, so each
// tests the other.
#pragma once

#include <algorithm>

#include "parallel/sharded_row.h"
#include "semantics/select.h"

namespace sluice {

class ShardSelection {
 public:
  // The row has no status and `max` is its largest value.
  ShardSelection(const ShardedRow& row, float max, int64_t support, const SelectParams& params)
      : row_(row),
        max_(max),
        scale_(semantics::ScalesOf(params).filter),
        params_(params),
        kept_{0, support},
        before_top_k_(kept_) {}

  Cut Select(const NoiseKey& key);

  // The rules, for ApplyRules.
  void Greedy() { kept_ = {0, 1}; }
  template <class Floor>
  void KeepFrom(const Floor& rule) {
    semantics::FloorSums sums;
    if constexpr (Floor::kSums > 0) {
      for (int i = 0; i < Floor::kSums; ++i) {
        sums.at[i] = SumOf(kept_, [&](float x) { return rule.TermsOf(x, max_, scale_).at[i]; });
      }
    }
    const float floor = rule.From(sums, max_, scale_);
    kept_.end = std::clamp(row_.CountAtLeast(floor), kept_.begin + 1, kept_.end);
  }
  void Typical();
  void BeforeTopK() { before_top_k_ = kept_; }
  void TopK();
  void TopP();
  void Xtc();
  void After(semantics::Filter) {}

 private:
  uint64_t Weight(float x) const { return semantics::Weight(x, max_, scale_); }
  float LogWeight(float x) const { return semantics::LogWeight(x, max_, scale_); }
  uint64_t MassAbove(float value) const;
  // The sum of value(x) over the first tokens of the row.
  template <typename Value>
  uint64_t SumBefore(int64_t rank, Value value) const {
    if (rank == 0) return 0;
    const float last = row_.ValueAtRank(rank - 1);
    const uint64_t ties = static_cast<uint64_t>(rank - row_.CountAbove(last));
    return row_.Sum([&](float x) { return x > last ? value(x) : 0; }) + ties * value(last);
  }
  template <typename Value>
  uint64_t SumOf(semantics::Interval kept, Value value) const {
    return SumBefore(kept.end, value) - SumBefore(kept.begin, value);
  }
  uint64_t MassBefore(int64_t rank) const {
    return SumBefore(rank, [this](float x) { return Weight(x); });
  }
  uint64_t Mass(semantics::Interval kept) const {
    return MassBefore(kept.end) - MassBefore(kept.begin);
  }
  int64_t EndWithTies(int64_t end, int64_t limit) const;

  semantics::Interval Nucleus(semantics::Interval measured) const;
  Cut ToCut() const;

  const ShardedRow& row_;
  float max_;
  float scale_;
  const SelectParams& params_;
  semantics::Interval kept_;  // ranks
  semantics::Interval before_top_k_;
};

}  // namespace sluice
