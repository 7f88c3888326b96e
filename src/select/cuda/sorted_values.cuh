// Top-k and top-p on the sorted values of a row, or of its top: semantics/select.h with the walks
// done by all threads at once. Ties are counted, not looked for.
#pragma once

#include "cuda/team.cuh"
#include "semantics/filters/top_p.h"
#include "semantics/order.h"
#include "semantics/rules.h"
#include "semantics/temperature.h"
#include "semantics/weight.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

// The rules that are decided here.
inline constexpr semantics::RuleSet kRulesOfSortedValues = semantics::Rules(
    semantics::Filter::kGreedy, semantics::Filter::kTopK, semantics::Filter::kTopP);

// Order keys, descending, in any memory.
template <class TeamOfRow>
class SortedValues {
 public:
  __device__ SortedValues(const TeamOfRow& team, const uint32_t* keys, int size)
      : team_(team), keys_(keys), size_(size) {}

  // whole_mass: of what top-p is measured on, when the values are not all of it; else 0.
  __device__ Cut Select(const SelectParams& params, uint64_t whole_mass) const {
    const semantics::RuleSet rules = semantics::RulesOf(params, size_);
    int end = size_;
    if (Has(rules, semantics::Filter::kGreedy)) {
      end = 1;
    } else {
      const bool with_ties = params.profile.ties == Ties::kAll;
      if (Has(rules, semantics::Filter::kTopK)) {
        end = with_ties ? EndOfTies(params.top_k - 1, size_) : params.top_k;
      }
      if (Has(rules, semantics::Filter::kTopP)) {
        const bool joint = params.profile.top_k_top_p == TopKTopP::kJoint;
        const int measured = joint ? size_ : end;
        const int by_mass = EndOfMass(params, measured, whole_mass);
        end = min(end, with_ties ? EndOfTies(by_mass - 1, measured) : by_mass);
      }
    }
    Cut cut;
    cut.count = end;
    cut.lower = semantics::ValueOfKey(keys_[end - 1]);
    cut.ties_kept = end - FirstAtOrBelow(keys_[end - 1]);
    return cut;
  }

 private:
  // The first place with a key that is not above `key`.
  __device__ int FirstAtOrBelow(uint32_t key) const {
    int low = 0, high = size_;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (keys_[middle] > key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  __device__ int EndOfTies(int place, int limit) const {
    const uint32_t key = keys_[place];
    return min(key == 0 ? size_ : FirstAtOrBelow(key - 1), limit);
  }

  // At least one.
  __device__ int EndOfMass(const SelectParams& params, int measured, uint64_t whole_mass) const {
    const float scale = semantics::ScalesOf(params).filter;
    const float largest = semantics::ValueOfKey(keys_[0]);
    const int step = team_.threads() * team_.blocks();
    auto weight_of = [&](int place) {
      return semantics::Weight(semantics::ValueOfKey(keys_[place]), largest, scale);
    };
    uint64_t total = whole_mass;
    if (total == 0) {
      uint64_t mine = 0;
      for (int i = team_.rank() * team_.threads() + team_.thread(); i < measured; i += step) {
        mine += weight_of(i);
      }
      total = team_.Sum(mine);
    }
    const uint64_t target = semantics::ExclusiveTarget(semantics::TargetMass(params.top_p, total),
                                                       params.profile.top_p_boundary);
    // Every block walks for itself.
    int end = 0;
    uint64_t through = 0;
#pragma unroll 1
    for (int first = 0; first < measured; first += team_.threads()) {
      const int place = first + team_.thread();
      const uint64_t weight = place < measured ? weight_of(place) : 0;
      const uint64_t before = through + team_.SumBefore(weight);
      const int kept = team_.CountOfBlock(place < measured && before < target);
      end += kept;
      if (kept < min(team_.threads(), measured - first)) break;
      through += team_.SumOfBlock(weight);
    }
    return max(end, 1);
  }

  const TeamOfRow& team_;
  const uint32_t* keys_;
  int size_;
};

}  // namespace sluice::cuda
