// The last phase of topk, by one block: the first k of a list of candidates, found by counting in
// bins of their order keys, and written in the order of indices or of the total order.
#pragma once

#include "cuda/sort_keys.cuh"
#include "cuda/token_list.cuh"
#include "topk/cuda/topk_bins.cuh"

namespace sluice::cuda {

inline constexpr int kFew = kWarpSize;  // candidates that a warp ranks by comparing all

// In shared memory.
struct RefineMemory {
  uint64_t few[kFew];
  uint64_t least;
  uint32_t few_count;
  uint32_t has_nan;

  __device__ void Clear() { few_count = has_nan = 0; }
};

// Which candidates are kept: those from `least` on, and the first `ties` of those that have the
// order key `tie`.
struct ListCut {
  uint64_t least;
  uint32_t tie;
  uint32_t ties;
  int rounds;

  __device__ bool IsAbove(uint64_t candidate) const { return candidate >= least; }
  __device__ bool IsTie(uint64_t candidate) const {
    return ties > 0 && static_cast<uint32_t>(candidate >> 32) == tie;
  }
};

__device__ inline uint32_t ScoreKeyOf(uint64_t candidate) {
  return static_cast<uint32_t>(candidate >> 32);
}

// visit(candidate) for this thread's, four loads in flight.
template <typename Visit>
__device__ void ForEachCandidate(const Team& block, const uint64_t* candidates, int size,
                                 Visit visit) {
  constexpr int kAtOnce = 4;
  int i = block.thread();
#pragma unroll 1
  for (; i + (kAtOnce - 1) * block.threads() < size; i += kAtOnce * block.threads()) {
    uint64_t loaded[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) loaded[j] = candidates[i + j * block.threads()];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) visit(loaded[j]);
  }
#pragma unroll 1
  for (; i < size; i += block.threads()) visit(candidates[i]);
}

// The range of the scores of candidates.
__device__ inline KeyRange RangeOfList(const Team& block, BlockScan& scan,
                                       const uint64_t* candidates, int size) {
  KeyRange range;
  ForEachCandidate(block, candidates, size,
                   [&](uint64_t candidate) { range.Add(ScoreKeyOf(candidate)); });
  return scan.Range(range);
}

// Of `size` candidates that threads have put into memory.few: the one of rank `wanted`.
__device__ inline uint64_t LeastOfFew(const Team& block, RefineMemory& memory, uint32_t size,
                                      uint32_t wanted) {
  block.SyncBlock();
  if (block.thread() < static_cast<int>(size)) {
    const uint64_t mine = memory.few[block.thread()];
    uint32_t larger = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < size; ++i) larger += memory.few[i] > mine ? 1 : 0;
    if (larger + 1 == wanted) memory.least = mine;
  }
  block.SyncBlock();
  return memory.least;
}

// candidates: keys of tokens in the order of ids, `wanted` of them to keep; `wanted` <= size.
// range: about that of their scores. A NaN among them, which has the largest order key, is kept,
// but for that what is kept means nothing. The first round has bins of equal width in the score,
// where scores are spread most evenly; those after it have bins of digits of order keys, which end.
__device__ inline ListCut CutList(const Team& block, BlockScan& scan, RefineMemory& memory,
                                  BinMemory& bins_memory, const uint64_t* candidates, int size,
                                  KeyRange range, uint32_t wanted) {
  ListCut cut{0, 0, 0, 0};
  if (static_cast<uint32_t>(size) == wanted) return cut;
  auto for_each = [&](auto visit) { ForEachCandidate(block, candidates, size, visit); };
  // Ranks the few candidates that is_left holds for; otherwise narrows the range to them.
  auto is_decided = [&](const RankBin& found, auto is_left) {
    wanted -= found.above;
    if (found.in_bin <= kFew) {
      for_each([&](uint64_t candidate) {
        if (is_left(candidate)) memory.few[atomicAdd(&memory.few_count, 1u)] = candidate;
      });
      cut.least = LeastOfFew(block, memory, found.in_bin, wanted);
      return true;
    }
    KeyRange of_bin;
    for_each([&](uint64_t candidate) {
      if (is_left(candidate)) of_bin.Add(ScoreKeyOf(candidate));
    });
    range = scan.Range(of_bin);
    return false;
  };
  if (block.thread() == 0) memory.few_count = 0;
  bool is_exact = false;  // the range
  if (range.IsFinite() && range.lowest < range.highest) {
    ++cut.rounds;
    const ScoreBins bins(semantics::ValueOfKey(range.lowest), semantics::ValueOfKey(range.highest));
    const RankBin found = FindRankBin(block, scan, bins_memory, wanted, [&](auto add) {
      for_each([&](uint64_t candidate) { add(bins.Of(ValueOf(candidate))); });
    });
    if (is_decided(found,
                   [&](uint64_t candidate) { return bins.Of(ValueOf(candidate)) == found.bin; })) {
      return cut;
    }
    is_exact = true;
  }
  if (!is_exact) range = RangeOfList(block, scan, candidates, size);
#pragma unroll 1
  while (range.lowest != range.highest) {
    ++cut.rounds;
    const int shift = max(0, 21 - __clz(static_cast<int>(range.highest - range.lowest)));
    auto is_in_range = [&](uint64_t candidate) {
      return ScoreKeyOf(candidate) >= range.lowest && ScoreKeyOf(candidate) <= range.highest;
    };
    auto bin_of = [&](uint64_t candidate) {
      return static_cast<int>((ScoreKeyOf(candidate) - range.lowest) >> shift);
    };
    const RankBin found = FindRankBin(block, scan, bins_memory, wanted, [&](auto add) {
      for_each([&](uint64_t candidate) {
        if (is_in_range(candidate)) add(bin_of(candidate));
      });
    });
    if (is_decided(found, [&](uint64_t candidate) {
          return is_in_range(candidate) && bin_of(candidate) == found.bin;
        })) {
      return cut;
    }
  }
  cut.least = (uint64_t{range.lowest} + 1) << 32;
  cut.tie = range.lowest;
  cut.ties = wanted;
  return cut;
}

// put(place, candidate) for the kept candidates, in their order. Whether none of them is NaN.
template <typename Put>
__device__ bool PutByIndex(const Team& block, BlockScan& scan, RefineMemory& memory,
                           const uint64_t* candidates, int size, const ListCut& cut, Put put) {
  const int share = ShareOf(size, ShiftOf(block.threads())) | 1;  // odd: no bank conflicts
  const int first = block.thread() * share;
  const int end = min(first + share, size);
  uint32_t mine = 0;  // ties in the high half: a list has fewer than 2^16
  bool has_nan = false;
#pragma unroll 4
  for (int i = first; i < end; ++i) {
    const uint64_t candidate = candidates[i];
    has_nan |= ScoreKeyOf(candidate) > semantics::OrderKey(INFINITY);
    mine += cut.IsAbove(candidate) ? 1 : cut.IsTie(candidate) ? 1u << 16 : 0;
  }
  if (has_nan) memory.has_nan = 1;
  const uint32_t before = scan.Add(mine).before;
  if (memory.has_nan != 0) return false;
  uint32_t above = before & 0xffffu;
  uint32_t ties = before >> 16;
#pragma unroll 4
  for (int i = first; i < end; ++i) {
    const uint64_t candidate = candidates[i];
    const bool is_above = cut.IsAbove(candidate);
    const bool is_tie = !is_above && cut.IsTie(candidate);
    if (is_above || (is_tie && ties < cut.ties)) {
      put(static_cast<int>(above + min(ties, cut.ties)), candidate);
    }
    above += is_above ? 1 : 0;
    ties += is_tie ? 1 : 0;
  }
  return true;
}

enum class Decision : uint8_t { kDone, kNan, kUndecided };

// A list that fits into the registers of a block: a thread has neighbours, in the order of threads.
class HeldList {
 public:
  static __device__ bool Fits(const Team& block, int size) {
    return size <= kMost * block.threads();
  }

  __device__ HeldList(const Team& block, const uint64_t* candidates, int size) {
    const int share = min(ShareOf(size, ShiftOf(block.threads())) | 1, kMost);  // odd: as above
    const int first = block.thread() * share;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const bool has_one = i < share && first + i < size;
      has_ |= has_one ? 1u << i : 0;
      held_[i] = has_one ? candidates[first + i] : 0;
    }
  }

  // The range of the scores.
  __device__ KeyRange Range(BlockScan& scan) const {
    KeyRange range;
    ForEach(has_, [&](uint64_t candidate, int) { range.Add(ScoreKeyOf(candidate)); });
    return scan.Range(range);
  }

  // put(place, candidate) for the first `wanted`, in their order. range: about that of the scores.
  // Undecided, with nothing put: no such range, and many scores close or equal to that of rank
  // `wanted`. bins, memory: zero.
  template <typename Put>
  __device__ Decision Keep(const Team& block, BlockScan& scan, RefineMemory& memory,
                           BinMemory& bins, const KeyRange& range, int wanted, Put put) const {
    if (!range.IsFinite() || range.lowest >= range.highest) return Decision::kUndecided;
    const ScoreBins of(semantics::ValueOfKey(range.lowest), semantics::ValueOfKey(range.highest));
    int bin[kMost];
    bool has_nan = false;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      bin[i] = of.Of(ValueOf(held_[i]));
      if (!Has(i)) continue;
      has_nan |= ScoreKeyOf(held_[i]) > semantics::OrderKey(INFINITY);
      atomicAdd(&bins.count[bin[i]], 1u);
    }
    if (has_nan) memory.has_nan = 1;
    block.SyncBlock();
    const RankBin found = FindCounted(block, scan, bins, static_cast<uint32_t>(wanted));
    if (memory.has_nan != 0) return Decision::kNan;
    if (found.in_bin > kFew) return Decision::kUndecided;
    uint32_t kept = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      kept |= bin[i] > found.bin ? 1u << i : 0;
      equal |= bin[i] == found.bin ? 1u << i : 0;
    }
    kept &= has_;
    equal &= has_;
    if (equal != 0) {
      ForEach(equal, [&](uint64_t candidate, int) {
        memory.few[atomicAdd(&memory.few_count, 1u)] = candidate;
      });
    }
    const uint64_t least =
        LeastOfFew(block, memory, found.in_bin, static_cast<uint32_t>(wanted) - found.above);
    if (equal != 0) {
      ForEach(equal, [&](uint64_t candidate, int i) { kept |= candidate >= least ? 1u << i : 0; });
    }
    auto place = static_cast<int>(scan.Add(static_cast<uint32_t>(__popc(kept))).before);
    ForEach(kept, [&](uint64_t candidate, int) { put(place++, candidate); });
    return Decision::kDone;
  }

 private:
  static constexpr int kMost = 8;

  __device__ bool Has(int i) const { return (has_ >> i & 1) != 0; }
  template <typename Visit>
  __device__ void ForEach(uint32_t which, Visit visit) const {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if ((which >> i & 1) != 0) visit(held_[i], i);
    }
  }

  uint64_t held_[kMost];
  uint32_t has_ = 0;
};

// By the total order. Candidates that are not kept follow the kept ones anyway.
template <typename Put>
__device__ bool PutByRank(const Team& block, uint64_t* candidates, int size, int kept, Put put) {
  SortDescending(block, candidates, size);
  if (ScoreKeyOf(candidates[0]) > semantics::OrderKey(INFINITY)) return false;
  for (int i = block.thread(); i < kept; i += block.threads()) put(i, candidates[i]);
  return true;
}

}  // namespace sluice::cuda
