// Selection on a sharded row: the same rules as semantics/select.h, with every walk over sorted
// tokens replaced by a bisection over sums. The two share the arithmetic and nothing else, so each
// tests the other.
#pragma once

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
        kept_{0, support} {}

  Cut Select(const NoiseKey& key);

 private:
  uint64_t Weight(float x) const { return semantics::Weight(x, max_, scale_); }
  float LogWeight(float x) const { return semantics::LogWeight(x, max_, scale_); }
  uint64_t MassAbove(float value) const;
  uint64_t MassBefore(int64_t rank) const;
  uint64_t Mass(semantics::Interval kept) const {
    return MassBefore(kept.end) - MassBefore(kept.begin);
  }
  int64_t EndWithTies(int64_t end, int64_t limit) const;

  void MinP();
  void TopNSigma();
  void Typical();
  void TopK();
  semantics::Interval TopP(semantics::Interval measured) const;
  void Xtc();
  Cut ToCut() const;

  const ShardedRow& row_;
  float max_;
  float scale_;
  const SelectParams& params_;
  semantics::Interval kept_;  // ranks
};

}  // namespace sluice
