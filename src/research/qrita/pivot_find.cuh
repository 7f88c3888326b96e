// Find by pivots, as Qrita (2026) searches: several pivots a pass, at equal parts of the range of
// values that is left, and what reaches each of them. With the smallest key that reaches a pivot
// and what it amounts to, the search ends as soon as that key is the boundary, however many
// elements are equal to it.
//
// A dozen passes look at values; from then on pivots part the order keys, so that any keys take 32
// binary passes more, or 16 quaternary ones.
#pragma once

#include "cuda/radix_select.cuh"
#include "semantics/order.h"

namespace sluice::research {

using namespace cuda;

// What reaches a pivot but not the next one.
struct PivotTally {
  uint64_t amount = 0;
  uint64_t nearest = 0;  // complement of the smallest key, then how many elements have it
  uint64_t of_nearest = 0;

  static __device__ uint64_t Pack(uint32_t key, uint32_t count) {
    return static_cast<uint64_t>(~key) << 32 | count;
  }
  __device__ uint32_t key() const { return ~static_cast<uint32_t>(nearest >> 32); }
  __device__ uint32_t count() const { return static_cast<uint32_t>(nearest); }

  __device__ void TakeNearest(uint64_t other, uint64_t of_other) {
    if (other >> 32 == nearest >> 32) {
      nearest += other & 0xffffffffu;
      of_nearest += of_other;
    } else if (other > nearest) {
      nearest = other;
      of_nearest = of_other;
    }
  }
  __device__ void Take(const PivotTally& other) {
    amount += other.amount;
    TakeNearest(other.nearest, other.of_nearest);
  }
};

// In shared memory. kTracksTies: whether the smallest keys are looked at.
template <int kPivots, bool kTracksTies>
struct PivotMemory {
  PivotTally of_warp[kMostWarps][kPivots];
  PivotTally of_block[kPivots];
};

__device__ inline uint64_t SumOfWarp(uint64_t value) {
  return Team::ReduceWarp(value, [](uint64_t a, uint64_t b) { return a + b; });
}

// Counts fit in 32 bits, for which there are instructions.
template <Amount kAmount, bool kTracksTies>
__device__ void ReduceWarp(PivotTally& tally) {
  if constexpr (kAmount == Amount::kCount) {
    tally.amount = __reduce_add_sync(~0u, static_cast<uint32_t>(tally.amount));
  } else {
    tally.amount = SumOfWarp(tally.amount);
  }
  if constexpr (kTracksTies) {
    const uint32_t mine = static_cast<uint32_t>(tally.nearest >> 32);
    const uint32_t nearest = __reduce_max_sync(~0u, mine);
    const uint32_t count = __reduce_add_sync(~0u, mine == nearest ? tally.count() : 0);
    tally.nearest = static_cast<uint64_t>(nearest) << 32 | count;
    tally.of_nearest =
        kAmount == Amount::kCount ? count : SumOfWarp(mine == nearest ? tally.of_nearest : 0);
  }
}

// Of all threads of the team, with two barriers a block for all pivots.
template <Amount kAmount, class TeamOfRow, int kPivots, bool kTracksTies>
__device__ void ReduceTallies(const TeamOfRow& team, PivotMemory<kPivots, kTracksTies>& memory,
                              PivotTally (&tallies)[kPivots]) {
  const int warps = team.threads() / kWarpSize;
#pragma unroll
  for (PivotTally& tally : tallies) ReduceWarp<kAmount, kTracksTies>(tally);
  if (warps > 1) {
    team.SyncBlock();  // the memory may still be read
    if (team.lane() == 0) {
#pragma unroll
      for (int i = 0; i < kPivots; ++i) memory.of_warp[team.thread() / kWarpSize][i] = tallies[i];
    }
    team.SyncBlock();
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      tallies[i] = team.lane() < warps ? memory.of_warp[team.lane()][i] : PivotTally();
      ReduceWarp<kAmount, kTracksTies>(tallies[i]);
    }
  }
  if (team.blocks() == 1) return;
  if (team.thread() == 0) {
#pragma unroll
    for (int i = 0; i < kPivots; ++i) memory.of_block[i] = tallies[i];
  }
  team.Sync();
#pragma unroll
  for (int i = 0; i < kPivots; ++i) {
    tallies[i] =
        team.lane() < team.blocks() ? *team.Of(team.lane(), &memory.of_block[i]) : PivotTally();
    ReduceWarp<kAmount, kTracksTies>(tallies[i]);
  }
  team.Sync();
}

// Where the boundary can be, by order keys, both ends included.
struct KeyBracket {
  uint32_t low;
  uint32_t high;

  // In (low, high], pivot `i` of `pivots` ascending ones.
  __device__ uint32_t Pivot(int i, int pivots, bool by_value) const {
    const uint32_t parts = static_cast<uint32_t>(pivots) + 1, part = static_cast<uint32_t>(i) + 1;
    if (by_value) {
      const float share = static_cast<float>(part) / static_cast<float>(parts);
      const float value = semantics::ValueOfKey(low) * (1.0f - share) +
                          semantics::ValueOfKey(high) * share;  // as a difference it may overflow
      if (value == value) return min(max(semantics::OrderKey(value), low + 1), high);
    }
    const uint64_t width = high - low;
    return low + static_cast<uint32_t>((width * part + parts - 1) / parts);
  }
};

// Of a count `count_above` is known, of a mass it is 0.
template <Amount kAmount, class TeamOfRow, int kPivots, bool kTracksTies, typename Visit>
__device__ Found Find(const TeamOfRow& team, PivotMemory<kPivots, kTracksTies>& memory,
                      uint64_t target, Visit visit) {
  constexpr int kPassesByValue = kPivots == 1 ? 12 : 6;
  uint32_t least = ~0u, most = 0;
  visit([&](uint32_t key, uint32_t, uint64_t) {
    least = min(least, key);
    most = max(most, key);
  });
  KeyBracket bracket;
  bracket.low = ~static_cast<uint32_t>(team.Max(~least));
  bracket.high = static_cast<uint32_t>(team.Max(most));
  Found found{0, 0, 0, 0};
  uint64_t above = 0;  // the bracket
#pragma unroll 1
  for (int pass = 0;; ++pass) {
    const bool is_last = bracket.low == bracket.high;  // how many there are is not known yet
    uint32_t pivots[kPivots];
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      pivots[i] = bracket.Pivot(i, kPivots, !is_last && pass < kPassesByValue);
    }
    PivotTally tallies[kPivots];
    visit([&](uint32_t key, uint32_t count, uint64_t mass) {
      if (key < pivots[0] || key > bracket.high) return;
      const uint64_t amount = is_last || kAmount == Amount::kCount ? count : mass;
#pragma unroll
      for (int i = 0; i < kPivots; ++i) {
        if (key < pivots[i] || (i + 1 < kPivots && key >= pivots[i + 1])) continue;
        tallies[i].amount += amount;
        if constexpr (kTracksTies) tallies[i].TakeNearest(PivotTally::Pack(key, count), amount);
      }
    });
    ReduceTallies<kAmount>(team, memory, tallies);
    if (is_last) {
      found = {bracket.low, above, 0, static_cast<uint32_t>(tallies[kPivots - 1].amount)};
      break;
    }
    int reaching = -1;  // the largest pivot at which the target is reached
    PivotTally at_pivot, reached;
    uint64_t above_next = above;
#pragma unroll
    for (int i = kPivots - 1; i >= 0; --i) {
      if (reaching < 0) above_next = above + at_pivot.amount;
      at_pivot.Take(tallies[i]);
      if (reaching < 0 && above + at_pivot.amount >= target) {
        reaching = i;
        reached = at_pivot;
      }
    }
    if (reaching < 0) above_next = above + at_pivot.amount;
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      if (i == reaching) bracket.low = pivots[i];
      if (i == reaching + 1) bracket.high = pivots[i] - 1;
    }
    if constexpr (kTracksTies) {
      if (reaching >= 0) {
        found = {reached.key(), above + reached.amount - reached.of_nearest, 0, reached.count()};
        if (found.above < target) break;
        bracket.low = found.key + 1;
      }
    }
    above = above_next;
  }
  if constexpr (kAmount == Amount::kCount) found.count_above = static_cast<uint32_t>(found.above);
  return found;
}

}  // namespace sluice::research
