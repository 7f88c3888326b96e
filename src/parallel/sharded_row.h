// One row of logits that is spread over vocabulary shards, seen only through sums over its tokens.
//
// Every method is made of integer sums (or a maximum) over all tokens. Each shard sums its own
// slice, so the total is exact in any order. A rank here is a position in the total order of the
// whole row, not a process.
#pragma once

#include <algorithm>
#include <span>

#include "semantics/interval.h"
#include "semantics/row_status.h"
#include "sluice/shards.hpp"

namespace sluice {

class ShardedRow {
 public:
  ShardedRow(std::span<const Shard> shards, int64_t row) : shards_(shards), row_(row) {}

  size_t shards() const { return shards_.size(); }
  int32_t first_id(size_t s) const { return shards_[s].first_id; }
  semantics::Row Part(size_t s) const {
    const LogitsView& logits = shards_[s].logits;
    return {logits.Row(row_), logits.dtype, logits.vocab};
  }

  semantics::RowScan Scan() const {
    semantics::RowScan whole{RowStatus::kOk, -semantics::Infinity(), 0};
    for (size_t s = 0; s < shards(); ++s) {
      const semantics::RowScan part = semantics::ScanRow(Part(s));
      whole.support += part.support;
      whole.max = std::max(whole.max, part.max);
      // A slice without support does not change the row's status.
      if (part.status != RowStatus::kEmptySupport) {
        whole.status = semantics::Worse(whole.status, part.status);
      }
    }
    if (whole.support == 0) whole.status = RowStatus::kEmptySupport;
    return whole;
  }

  // Sum of value(x) over the tokens that are not masked.
  template <typename Value>
  uint64_t Sum(Value value) const {
    uint64_t sum = 0;
    for (size_t s = 0; s < shards(); ++s) {
      const semantics::Row part = Part(s);
      for (int64_t i = 0; i < part.size; ++i) {
        const float x = part[i];
        if (x != -semantics::Infinity()) sum += value(x);
      }
    }
    return sum;
  }

  template <typename Predicate>
  int64_t Count(Predicate predicate) const {
    return static_cast<int64_t>(Sum([&](float x) { return predicate(x) ? uint64_t{1} : 0; }));
  }
  int64_t CountAbove(float value) const {
    return Count([value](float x) { return x > value; });
  }
  int64_t CountAtLeast(float value) const {
    return Count([value](float x) { return x >= value; });
  }

  // The value of the token at that rank, by bisection over the order-preserving keys of the finite
  // values: the largest value that at least rank + 1 tokens reach.
  float ValueAtRank(int64_t rank) const {
    return LargestValue([&](float value) { return CountAtLeast(value) > rank; });
  }

  // The largest finite value for which `holds`, which is true up to some value and false above;
  // the lowest finite value when it holds nowhere. Calls `holds` up to 32 times; one that counts
  // reads the whole row each time.
  template <typename Predicate>
  static float LargestValue(Predicate holds) {
    uint32_t low = semantics::OrderKey(-semantics::FloatOf(0x7f7fffffu));
    uint32_t high = semantics::OrderKey(semantics::FloatOf(0x7f7fffffu));
    while (low < high) {
      const uint32_t middle = high - (high - low) / 2;
      if (holds(semantics::ValueOfKey(middle))) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return semantics::ValueOfKey(low);
  }

 private:
  std::span<const Shard> shards_;
  int64_t row_;
};

}  // namespace sluice
