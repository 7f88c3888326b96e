// The kept tokens of a Cut in the order of ids: a read that counts them, stretch by stretch, and
// one of the parts that have any. Ties are counted as they pass, as semantics::CutWalk does.
#pragma once

#include "cuda/id_ordered_slice.cuh"
#include "cuda/row_status.cuh"
#include "semantics/order.h"
#include "semantics/row_status.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

// How many ties equal to each boundary.
struct TieCounts {
  int64_t upper;
  int64_t lower;
};

// Membership in a Cut of tokens at a known place among their ties.
class TieRules {
 public:
  __device__ explicit TieRules(const Cut& cut)
      : upper_(cut.upper),
        lower_(cut.lower),
        dropped_(cut.ties_dropped),
        kept_(cut.ties_kept),
        is_one_group_(cut.upper == cut.lower),
        is_ascending_(cut.lower <= cut.upper) {}

  // Whether it is inside or at a boundary.
  __device__ bool MayKeep(float x) const { return x >= lower_ && x <= upper_; }
  __device__ bool IsInside(float x) const { return x < upper_ && x > lower_; }
  __device__ bool IsAtUpper(float x) const { return x == upper_; }
  __device__ bool IsAtLower(float x) const { return x == lower_; }

  // before: ties that precede this token.
  __device__ bool Keeps(float x, const TieCounts& before) const {
    if (IsInside(x)) return true;
    if (!is_ascending_) return false;
    if (IsAtUpper(x)) {
      return before.upper >= dropped_ && (!is_one_group_ || before.upper < kept_);
    }
    return IsAtLower(x) && before.lower < kept_;
  }

  // The number of kept ties among those that follow the ties before them.
  __device__ int64_t KeptOf(const TieCounts& ties, const TieCounts& before) const {
    if (!is_ascending_) return 0;
    auto in_range = [](int64_t from, int64_t to) { return to > from ? to - from : int64_t{0}; };
    const int64_t end = before.upper + ties.upper;
    const int64_t of_upper =
        in_range(max(before.upper, dropped_), is_one_group_ ? min(end, kept_) : end);
    if (is_one_group_) return of_upper;
    return of_upper + in_range(before.lower, min(before.lower + ties.lower, kept_));
  }

 private:
  float upper_;
  float lower_;
  int64_t dropped_;
  int64_t kept_;
  bool is_one_group_;
  bool is_ascending_;
};

// The counts of a stretch: tokens between the boundaries, and ties at them.
struct StretchCounts {
  uint64_t inside;
  uint64_t ties;  // at the upper boundary in the high half, at the lower one in the low half

  __device__ StretchCounts operator+(const StretchCounts& other) const {
    return {inside + other.inside, ties + other.ties};
  }
  __device__ TieCounts Ties() const {
    return {static_cast<int64_t>(ties >> 32), static_cast<int64_t>(ties & 0xffffffffu)};
  }
};

// In shared memory, for sums over the blocks before this one.
struct CollectMemory {
  StretchCounts of_block;
};

struct CountsAround {
  StretchCounts before;  // of the warps before this one
  StretchCounts all;
};

// mine: of this lane.
__device__ inline CountsAround SumOfWarps(const Team& team, CollectMemory& memory,
                                          const StretchCounts& mine) {
  const StretchCounts through{team.SumBefore(mine.inside), team.SumBefore(mine.ties)};
  CountsAround sums;
  sums.before = {__shfl_sync(~0u, through.inside, 0), __shfl_sync(~0u, through.ties, 0)};
  sums.all = {};
  if (team.thread() == team.threads() - 1) memory.of_block = through + mine;
  team.Sync();
  StretchCounts others{};
  for (int r = 0; r < team.blocks(); ++r) {
    const StretchCounts of_block = *team.Of(r, &memory.of_block);
    sums.all = sums.all + of_block;
    if (r < team.rank()) others = others + of_block;
  }
  sums.before = sums.before + others;
  if (team.blocks() > 1) team.Sync();  // a block may leave before others have read
  return sums;
}

// The state of a row after the read that counts.
struct KeptCount {
  semantics::StatusAndMax row;
  int64_t kept;         // by the team
  int64_t before;       // by the warps before this one
  TieCounts ties;       // that precede this warp's stretch
  uint32_t busy_parts;  // of the stretch: where tokens may be kept
};

template <typename Stretch>
__device__ KeptCount CountKept(const Team& team, CollectMemory& memory, const Stretch& stretch,
                               const TieRules& rules) {
  uint32_t inside = 0, at_upper = 0, at_lower = 0, busy = 0;
  float largest = -INFINITY;
  bool has_nan = false;
  stretch.ForEachIn(stretch.kAllParts, [&](float x, int id, uint32_t part) {
    largest = fmaxf(largest, x);
    has_nan |= semantics::IsNan(x);
    if (!rules.MayKeep(x) || id < 0) return;
    inside += rules.IsInside(x) ? 1 : 0;
    at_upper += rules.IsAtUpper(x) ? 1 : 0;
    at_lower += rules.IsAtLower(x) ? 1 : 0;
    busy |= part;
  });
  KeptCount count;
  count.busy_parts = __reduce_or_sync(~0u, busy);
  count.row = StatusAndMaxOf(team, largest, has_nan);

  const CountsAround sums =
      SumOfWarps(team, memory, {inside, static_cast<uint64_t>(at_upper) << 32 | at_lower});
  count.ties = sums.before.Ties();
  count.before = static_cast<int64_t>(sums.before.inside) + rules.KeptOf(count.ties, {0, 0});
  count.kept = static_cast<int64_t>(sums.all.inside) + rules.KeptOf(sums.all.Ties(), {0, 0});
  return count;
}

// visit(x, id, place) for the kept tokens, lane by lane; place: how many precede it.
template <typename Stretch, typename Visit>
__device__ void ForEachKept(const Stretch& stretch, const TieRules& rules, const KeptCount& count,
                            Visit visit) {
  const uint32_t earlier = (1u << (threadIdx.x % kWarpSize)) - 1;
  int64_t place = count.before;
  TieCounts ties = count.ties;
  stretch.ForEachIn(count.busy_parts, [&](float x, int id, uint32_t) {
    const bool may_keep = id >= 0 && rules.MayKeep(x);
    if (!__any_sync(~0u, may_keep)) return;
    const uint32_t at_upper = __ballot_sync(~0u, may_keep && rules.IsAtUpper(x));
    const uint32_t at_lower = __ballot_sync(~0u, may_keep && rules.IsAtLower(x));
    const bool is_kept = may_keep && rules.Keeps(x, {ties.upper + __popc(at_upper & earlier),
                                                     ties.lower + __popc(at_lower & earlier)});
    const uint32_t kept = __ballot_sync(~0u, is_kept);
    if (is_kept) visit(x, id, place + __popc(kept & earlier));
    place += __popc(kept);
    ties.upper += __popc(at_upper);
    ties.lower += __popc(at_lower);
  });
}

}  // namespace sluice::cuda
