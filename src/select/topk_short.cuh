// topk of a row that one block holds in registers, eight scores a thread: no sample, no marks and
// no list. What costs here is not the reading but the instructions of 32 warps
// on one multiprocessor, some forty a score; so a score is seen once by each step, as a float.
#pragma once

#include "select/topk_refine.cuh"
#include "select/topk_tiles.cuh"

namespace sluice::cuda {

enum class Short : uint8_t { kDone, kNan, kUndecided };

template <DType kDType>
class ShortRow {
 public:
  static constexpr int kElements = Vector<kDType>::kElements;
  static constexpr int kScores = 8;                     // of a thread
  static constexpr int kVectors = kScores / kElements;  // of a thread

  // Whether the block has room for the row.
  static __device__ bool Fits(const Team& block, const TiledRow<kDType>& row) {
    return row.AllVectors() <= kVectors * kMostThreads && block.threads() == kMostThreads;
  }

  __device__ ShortRow(const Team& block, const TiledRow<kDType>& row) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      first_[j] = row.LoadScores(j * kMostThreads + block.thread(), x_ + j * kElements, has_,
                                 j * kElements);
    }
  }

  // put(place, index, x) for the first `wanted` scores, in the order of indices. Undecided, with
  // nothing put: infinities, and many scores close to the wanted-th or equal to it. bins: zero, for
  // all threads behind the next SyncBlock.
  template <typename Put>
  __device__ Short Keep(const Team& block, ScanMemory& scan_memory, RefineMemory& memory,
                        BinMemory& bins, int scores, int wanted, Put put) const {
    BlockScan scan(block, scan_memory);
    if (block.thread() == 0) memory.few_count = 0;
    const KeyRange range = scan.Range(Range());
    if (range.HasNan()) return Short::kNan;
    uint32_t kept = has_;
    if (wanted < scores) {
      const float low = semantics::ValueOfKey(range.lowest);
      const float width = semantics::ValueOfKey(range.highest) - low;
      if (!(width > 0.0f && width < INFINITY)) return Short::kUndecided;
      // It never falls as x rises, and a score is asked for its bin once.
      const float scale = __fdividef(kRankBins - 1, width);
      int bin[kScores];
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        bin[i] = min(static_cast<int>((x_[i] - low) * scale), kRankBins - 1);
        if (Has(i)) atomicAdd(&bins.count[bin[i]], 1u);
      }
      block.SyncBlock();
      const RankBin found = LocateRank(block, scan, bins, static_cast<uint32_t>(wanted));
      if (found.in_bin > kFew) return Short::kUndecided;
      uint32_t above = 0, reaching = 0;
#pragma unroll
      for (int i = kScores - 1; i >= 0; --i) {  // by the sign of the difference
        above = __funnelshift_l(static_cast<uint32_t>(found.bin - bin[i]), above, 1);
        reaching = __funnelshift_l(static_cast<uint32_t>(found.bin - 1 - bin[i]), reaching, 1);
      }
      kept = above & has_;
      const uint32_t equal = reaching & ~above & has_;
      if (equal != 0) {
        ForEach(equal,
                [&](int i) { memory.few[atomicAdd(&memory.few_count, 1u)] = CandidateAt(i); });
      }
      const uint64_t least =
          LeastOfFew(block, memory, found.in_bin, static_cast<uint32_t>(wanted) - found.above);
      if (equal != 0) {
        ForEach(equal, [&](int i) { kept |= CandidateAt(i) >= least ? 1u << i : 0; });
      }
    }
    // Vectors of a thread are far from each other: what is kept of the first ones in the low half,
    // of the second ones in the high half.
    static_assert(kVectors <= 2);
    constexpr uint32_t kFirst = (1u << kElements) - 1;
    const BlockScan::Sums sums = scan.Add(static_cast<uint32_t>(__popc(kept & kFirst)) |
                                          static_cast<uint32_t>(__popc(kept & ~kFirst)) << 16);
    int place[2] = {static_cast<int>(sums.before & 0xffffu),
                    static_cast<int>((sums.all & 0xffffu) + (sums.before >> 16))};
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if ((kept >> i & 1) != 0) put(place[i / kElements]++, IndexAt(i), x_[i]);
    }
    return Short::kDone;
  }

 private:
  __device__ bool Has(int i) const { return (has_ >> i & 1) != 0; }
  __device__ int IndexAt(int i) const { return first_[i / kElements] + i % kElements; }
  __device__ uint64_t CandidateAt(int i) const { return KeyOfToken(x_[i], IndexAt(i)); }

  // Of this thread's scores; up to a key that is none's if one is NaN.
  __device__ KeyRange Range() const {
    KeyRange range;
    if (has_ == 0) return range;
    float low = INFINITY, high = -INFINITY;
    bool has_nan = false;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if (!Has(i)) continue;
      low = fminf(low, x_[i]);
      high = fmaxf(high, x_[i]);
      has_nan |= semantics::IsNan(x_[i]);
    }
    range.lowest = semantics::OrderKey(low);
    range.highest = has_nan ? ~0u : semantics::OrderKey(high);
    return range;
  }

  template <typename Visit>
  static __device__ void ForEach(uint32_t which, Visit visit) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if ((which >> i & 1) != 0) visit(i);
    }
  }

  float x_[kScores];
  uint32_t has_ = 0;     // which of them are of the row
  int first_[kVectors];  // indices
};

}  // namespace sluice::cuda
