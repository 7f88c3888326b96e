// topk of a row that one block holds in registers, eight scores a thread: no sample, no marks and
// no list. What costs here is not the reading but the instructions of 32 warps on one
// multiprocessor, some forty a score, and a chain of barriers; so a score is seen once by each
// step, as a float, and its first bin is known without the range of all: the leading bits of the
// score in 16 bits.
#pragma once

#include <cuda_fp16.h>

#include "topk/cuda/topk_refine.cuh"
#include "topk/cuda/topk_tiles.cuh"

namespace sluice::cuda {

enum class Short : uint8_t { kDone, kNan, kUndecided };

inline constexpr int kShortBins = 4096;
inline constexpr int kMostShortEqual = 128;  // scores of the bin of rank `wanted`, which are ranked

// In shared memory.
struct ShortMemory {
  alignas(16) uint32_t count[kShortBins];
  uint64_t equal[kMostShortEqual];
  uint64_t least;
  uint32_t equal_count;
  uint32_t above;
  uint32_t in_bin;
  int bin;

  // For the threads after the next SyncBlock.
  __device__ void Clear(const Team& block) {
    for (int i = 4 * block.thread(); i < kShortBins; i += 4 * block.threads()) {
      *reinterpret_cast<uint4*>(count + i) = {0, 0, 0, 0};
    }
    if (block.thread() == 0) equal_count = 0;
  }
};

// Two scores as 16-bit floats in the order of integers; NaN is the largest. Both zeros are one.
__device__ inline uint32_t HalfKeys(float low, float high) {
  const __half2 halves = __hadd2(__floats2half2_rn(low, high), __float2half2_rn(0.0f));
  const uint32_t bits = *reinterpret_cast<const uint32_t*>(&halves);
  return bits ^ ((bits >> 15 & 0x00010001u) * 0x7fffu | 0x80008000u);
}

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
  // nothing put: infinities, and many scores close or equal to that of rank `wanted`. memory:
  // clear, for all threads after the next SyncBlock.
  template <typename Put>
  __device__ Short Keep(const Team& block, ScanMemory& scan_memory, ShortMemory& memory, int scores,
                        int wanted, Put put) const {
    BlockScan scan(block, scan_memory);
    uint32_t above = has_, equal = 0;
    block.SyncBlock();  // while the scores are on their way
    if (wanted == scores) {
      if (block.CountOfBlock(Range().HasNan()) != 0) return Short::kNan;
    } else {
      int bin[kScores];
#pragma unroll
      for (int i = 0; i < kScores; i += 2) {
        const uint32_t keys = HalfKeys(x_[i], x_[i + 1]);
        bin[i] = static_cast<int>(keys >> 4 & 0xfffu);
        bin[i + 1] = static_cast<int>(keys >> 20);
      }
      CountBins(memory, bin);
      block.SyncBlock();
      if (memory.count[kShortBins - 1] != 0) return Short::kNan;
      Find(block, scan, memory, static_cast<uint32_t>(wanted));
      if (memory.in_bin > kMostShortEqual) {  // a range that is narrow for its magnitude
        const KeyRange range = scan.Range(Range());
        memory.Clear(block);
        const float low = semantics::ValueOfKey(range.lowest);
        const float width = semantics::ValueOfKey(range.highest) - low;
        if (!(width > 0.0f && width < INFINITY)) return Short::kUndecided;
        const float scale = __fdividef(kShortBins - 1, width);
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
          bin[i] = min(static_cast<int>((x_[i] - low) * scale), kShortBins - 1);
        }
        block.SyncBlock();
        CountBins(memory, bin);
        block.SyncBlock();
        Find(block, scan, memory, static_cast<uint32_t>(wanted));
        if (memory.in_bin > kMostShortEqual) return Short::kUndecided;
      }
      const int found = memory.bin;
      uint32_t reaching = 0;
#pragma unroll
      for (int i = kScores - 1; i >= 0; --i) {  // by the sign of the difference
        above = __funnelshift_l(static_cast<uint32_t>(found - bin[i]), above, 1);
        reaching = __funnelshift_l(static_cast<uint32_t>(found - 1 - bin[i]), reaching, 1);
      }
      above &= has_;
      equal = reaching & ~above & has_;
      if (equal != 0) {
        ForEach(equal,
                [&](int i) { memory.equal[atomicAdd(&memory.equal_count, 1u)] = CandidateAt(i); });
      }
    }
    // Vectors of a thread are far from each other: what is above of the first ones in the low half,
    // of the second ones in the high half.
    static_assert(kVectors <= 2);
    constexpr uint32_t kFirst = (1u << kElements) - 1;
    auto halves = [&](uint32_t which) {
      return static_cast<uint32_t>(__popc(which & kFirst) | __popc(which & ~kFirst) << 16);
    };
    const BlockScan::Sums sums = scan.Add(halves(above));
    uint32_t before = 0;  // of the equal ones that are kept
    if (wanted < scores) {
      const auto in_bin = static_cast<int>(memory.in_bin);
      FindLeast(block, memory, in_bin, wanted - static_cast<int>(memory.above));
      block.SyncBlock();
      const uint64_t least = memory.least;
      for (int from = 0; from < in_bin; from += kWarpSize) {
        const int at = from + block.lane();
        const uint64_t one = at < in_bin ? memory.equal[at] : 0;
        const bool is_kept = at < in_bin && one >= least;
#pragma unroll
        for (int j = 0; j < kVectors; ++j) {
          const int first_of_warp = __shfl_sync(~0u, first_[j], 0);
          const uint32_t earlier = __ballot_sync(~0u, is_kept && IdOf(one) < first_of_warp);
          before += static_cast<uint32_t>(__popc(earlier)) << 16 * j;
        }
      }
      uint32_t kept = 0;
      if (equal != 0) {
        ForEach(equal, [&](int i) { kept |= CandidateAt(i) >= least ? 1u << i : 0; });
      }
      if (__ballot_sync(~0u, kept != 0) != 0) {
        const uint32_t mine = halves(kept);
        before += block.SumThrough(mine) - mine;
      }
      above |= kept;
    }
    int place[2] = {static_cast<int>((sums.before & 0xffffu) + (before & 0xffffu)),
                    static_cast<int>((sums.all & 0xffffu) + (sums.before >> 16) + (before >> 16))};
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if ((above >> i & 1) != 0) put(place[i / kElements]++, IndexAt(i), x_[i]);
    }
    return Short::kDone;
  }

 private:
  __device__ void CountBins(ShortMemory& memory, const int (&bin)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if (Has(i)) atomicAdd(&memory.count[bin[i]], 1u);
    }
  }
  // The bin of the rank-th largest: there is one.
  static __device__ void Find(const Team& block, BlockScan& scan, ShortMemory& memory,
                              uint32_t rank) {
    constexpr int kOfThread = kShortBins / kMostThreads;
    static_assert(kOfThread == 4);
    const int first = kShortBins - kOfThread * (block.thread() + 1);  // the first has the largest
    const uint4 four = *reinterpret_cast<const uint4*>(memory.count + first);
    uint32_t above = scan.Add(four.x + four.y + four.z + four.w).before;
    const uint32_t of_bin[kOfThread] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = kOfThread - 1; i >= 0; --i) {
      if (above < rank && rank - above <= of_bin[i]) {
        memory.bin = first + i;
        memory.above = above;
        memory.in_bin = of_bin[i];
      }
      above += of_bin[i];
    }
    block.SyncBlock();
  }
  // The rank `wanted` of memory.equal, for the threads after the next SyncBlock. A warp looks at
  // one of them at a time.
  static __device__ void FindLeast(const Team& block, ShortMemory& memory, int size, int wanted) {
    for (int e = block.thread() / kWarpSize; e < size; e += block.threads() / kWarpSize) {
      const uint64_t mine = memory.equal[e];
      int larger = 0;
      for (int from = 0; from < size; from += kWarpSize) {
        const int other = from + block.lane();
        larger += __popc(__ballot_sync(~0u, other < size && memory.equal[other] > mine));
      }
      if (block.lane() == 0 && larger + 1 == wanted) memory.least = mine;
    }
  }
  __device__ bool Has(int i) const { return (has_ >> i & 1) != 0; }
  __device__ int IndexAt(int i) const { return first_[i / kElements] + i % kElements; }
  __device__ uint64_t CandidateAt(int i) const { return KeyOfToken(x_[i], IndexAt(i)); }

  // The range of this thread's scores; up to a key that is none's if one is NaN.
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
