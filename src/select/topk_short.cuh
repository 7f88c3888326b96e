// topk of a row that one block holds in registers: no sample, no marks and no list.
#pragma once

#include "select/topk_refine.cuh"
#include "select/topk_tiles.cuh"

namespace sluice::cuda {

enum class Short : uint8_t { kDone, kNan, kUndecided };

template <DType kDType>
class ShortRow {
 public:
  static constexpr int kElements = Vector<kDType>::kElements;
  static constexpr int kVectors = 8 / kElements;  // of a thread

  // Whether the block has room for the row.
  static __device__ bool Fits(const Team& block, const TiledRow<kDType>& row) {
    return row.AllVectors() <= kVectors * block.threads();
  }

  __device__ ShortRow(const Team& block, const TiledRow<kDType>& row) {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      first_[j] = row.LoadVector(j * block.threads() + block.thread(), keys_ + j * kElements);
    }
  }

  // put(place, index) for the first `wanted` scores, in the order of indices. Undecided, with
  // nothing put: infinities, and many scores close to the wanted-th or equal to it.
  template <typename Put>
  __device__ Short Keep(const Team& block, ScanMemory& scan_memory, RefineMemory& memory,
                        BinMemory& bins_memory, int scores, int wanted, Put put) const {
    BlockScan scan(block, scan_memory);
    if (block.thread() == 0) memory.few_count = 0;
    KeyRange range;
    ForEach([&](uint32_t key, int, int) { range.Add(key); });
    range = scan.Range(range);
    if (range.HasNan()) return Short::kNan;
    uint64_t least = 0;
    if (wanted < scores) {
      if (!range.IsFinite() || range.lowest == range.highest) return Short::kUndecided;
      const ScoreBins bins(semantics::ValueOfKey(range.lowest),
                           semantics::ValueOfKey(range.highest));
      const RankBin found =
          FindRankBin(block, scan, bins_memory, static_cast<uint32_t>(wanted), [&](auto add) {
            ForEach([&](uint32_t key, int, int) { add(bins.Of(semantics::ValueOfKey(key))); });
          });
      if (found.in_bin > kFew) return Short::kUndecided;
      ForEach([&](uint32_t key, int index, int) {
        if (bins.Of(semantics::ValueOfKey(key)) == found.bin) {
          memory.few[atomicAdd(&memory.few_count, 1u)] = CandidateOf(key, index);
        }
      });
      least = LeastOfFew(block, memory, found.in_bin, static_cast<uint32_t>(wanted) - found.above);
    }
    // Vectors of a thread are far from each other: what is kept of the first ones in the low half,
    // of the second ones in the high half.
    static_assert(kVectors <= 2);
    uint32_t mine = 0;
    ForEach([&](uint32_t key, int index, int j) {
      mine += CandidateOf(key, index) >= least ? 1u << 16 * j : 0;
    });
    const BlockScan::Sums sums = scan.Add(mine);
    int place[2] = {static_cast<int>(sums.before & 0xffffu),
                    static_cast<int>((sums.all & 0xffffu) + (sums.before >> 16))};
    ForEach([&](uint32_t key, int index, int j) {
      if (CandidateOf(key, index) >= least) put(place[j]++, index);
    });
    return Short::kDone;
  }

 private:
  static __device__ uint64_t CandidateOf(uint32_t key, int index) {
    return static_cast<uint64_t>(key) << 32 | ~static_cast<uint32_t>(index);
  }

  // visit(order key, index, vector) for this thread's scores.
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const uint32_t key = keys_[j * kElements + e];
        if (key != kNoKey) visit(key, first_[j] + e, j);
      }
    }
  }

  uint32_t keys_[kVectors * kElements];
  int first_[kVectors];  // indices
};

}  // namespace sluice::cuda
