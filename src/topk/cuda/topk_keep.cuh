// The last phase of topk where each block of a row keeps its own of what is marked, so that nothing
// is gathered and no block has more to do than the others:
//
//   a warp lists what it has marked, for itself, and fetches the scores again
//     -> each block: how many of its candidates are in which bin, to all
//     -> each: in which bin the k-th falls; its candidates of that bin, and how many it has beyond
//        it, to all
//       -> each: writes its own.
//
// Two messages one after the other, 600 cycles each, in place of the 6000 of one block with all. A
// block alone needs no message.
#pragma once

#include "cuda/token_list.cuh"
#include "topk/cuda/topk_verify.cuh"

namespace sluice::cuda {

inline constexpr int kKeepBins = 512;
inline constexpr int kHeld = 8;         // candidates of a thread
inline constexpr int kMostEqual = 256;  // candidates of the bin of rank `wanted`, which are ranked

// In shared memory.
struct KeepMemory {
  // The bins of a block, two in a word; the last one is no bin, but not 0 where the block has NaN
  // or more candidates than its threads can hold.
  using Bins = uint32_t[kKeepBins / 2];

  alignas(16) Bins mine;
  alignas(16) Bins bins[kMostBlocks];    // from all
  uint64_t equal[kMostEqual];            // of the bin of rank `wanted`, from all, by index
  uint32_t is_kept[kMostEqual / 32];     // bits of those
  uint32_t above_of_block[kMostBlocks];  // candidates above that bin, from all
  int bin;                               // that bin; -1: undecided
  int above;
  int in_bin;
  int total;
  uint64_t counted, ranked;  // barriers of the two messages
};

// Before ArriveStarted.
__device__ inline void BeginKeep(const Team& team, KeepMemory& memory) {
  for (int i = team.thread(); i < kKeepBins / 2; i += team.threads()) memory.mine[i] = 0;
  if (team.thread() < kMostEqual / 32) memory.is_kept[team.thread()] = 0;
  if (team.thread() == 0) {
    memory.bin = -1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (team.blocks() == 1) return;
    StartBarrier(&memory.counted);
    ExpectBytes(&memory.counted, team.blocks() * static_cast<int>(sizeof(memory.mine)));
    StartBarrier(&memory.ranked);
#endif
  }
}

// Bins of equal width from one finite score to a larger one: in the score, or in its order key
// where the larger one is of another magnitude, as in exp(4 N).
class CandidateBins {
 public:
  __device__ explicit CandidateBins(const KeyRange& range)
      : low_key_(range.lowest), low_(semantics::ValueOfKey(range.lowest)) {
    const float high = semantics::ValueOfKey(range.highest);
    by_key_ = low_ > 0.0f ? high > 8.0f * low_ : high < 0.0f && low_ < 8.0f * high;
    // Halves, because the difference of two finite scores may be none.
    const float width =
        by_key_ ? __uint2float_rn(range.highest - range.lowest) : 0.5f * high - 0.5f * low_;
    scale_ = __fdividef(kKeepBins - 1, width);
  }

  // The bin of any score; those outside are in the bins at the ends. It never falls as x rises.
  __device__ int Of(float x) const {
    const float from_low = by_key_
                               ? __uint2float_rn(max(semantics::OrderKey(x), low_key_) - low_key_)
                               : 0.5f * x - 0.5f * low_;
    return min(max(static_cast<int>(from_low * scale_), 0), kKeepBins - 2);
  }

 private:
  uint32_t low_key_;
  float low_;
  float scale_;
  bool by_key_;
};

__device__ inline uint32_t CountIn(const KeepMemory::Bins& bins, int bin) {
  return bin % 2 == 0 ? bins[bin / 2] & 0xffffu : bins[bin / 2] >> 16;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Sends the bins of this block to all.
__device__ inline void SendBins(const Team& team, KeepMemory& memory) {
  constexpr int kVectors = sizeof(memory.mine) / sizeof(int4);
  for (int i = team.thread(); i < team.blocks() * kVectors; i += team.threads()) {
    const int to = i / kVectors;
    const int vector = i % kVectors;
    SendThere(PlaceIn(to, memory.bins[team.rank()]) + vector * static_cast<uint32_t>(sizeof(int4)),
              reinterpret_cast<const int4*>(memory.mine)[vector], PlaceIn(to, &memory.counted));
  }
}
#endif

// Finds the bin of rank `wanted` among the bins of all blocks.
__device__ inline void FindBin(const Team& team, BlockScan& scan, const KeepMemory::Bins* bins,
                               KeepMemory& memory, const TopkTarget& target) {
  constexpr int kWords = kKeepBins / 2;
  const int word = kWords - 1 - team.thread();  // the first thread has the largest
  uint32_t low = 0, high = 0;
  if (word >= 0) {
    for (int r = 0; r < team.blocks(); ++r) {
      const uint32_t two = bins[r][word];
      low += two & 0xffffu;
      high += two >> 16;
    }
  }
  const bool is_undecided = word == kWords - 1 && high != 0;
  if (word == kWords - 1) high = 0;
  const BlockScan::Sums sums = scan.Add(low + high);
  const auto total = static_cast<int>(sums.all);
  const auto rank = static_cast<uint32_t>(target.wanted);
  const bool is_enough = total >= target.wanted && total <= target.capacity;
  const bool is_higher = sums.before + high >= rank;
  const uint32_t in_bin = is_higher ? high : low;
  if (is_enough && sums.before < rank && rank <= sums.before + high + low && in_bin <= kMostEqual) {
    memory.bin = 2 * word + (is_higher ? 1 : 0);
    memory.above = static_cast<int>(is_higher ? sums.before : sums.before + high);
    memory.in_bin = static_cast<int>(in_bin);
  }
  if (team.thread() == 0) memory.total = is_undecided ? -1 : total;
  team.SyncBlock();
}

// The indices of what this warp has marked, in their order, if there is room: how many they are. By
// a warp, after its marks.
template <bool kShares, DType kDType>
__device__ int ListOfWarp(const Team& team, const TiledRow<kDType>& row, const uint32_t* words,
                          int32_t* list, int room) {
  const auto tiles = row.template TilesOfWarp<kShares>(team);
  const int share = ShareOf(tiles.Words(), 5);  // words of a lane, neighbours
  const int first = row.WordOf(tiles) + team.lane() * share;
  const int end = min(first + share, row.WordOf(tiles) + tiles.Words());
  uint32_t marked = 0;
#pragma unroll 4
  for (int w = first; w < end; ++w) marked += static_cast<uint32_t>(__popc(words[w]));
  const uint32_t through = team.SumThrough(marked);
  const auto count = static_cast<int>(__shfl_sync(~0u, through, kWarpSize - 1));
  if (count > room) return count;
  auto place = static_cast<int>(through - marked);
#pragma unroll 1
  for (int w = first; w < end; ++w) {
    for (uint32_t left = words[w]; left != 0; left &= left - 1) {
      list[place++] = row.IndexAt(w * 32 + __ffs(static_cast<int>(left)) - 1);
    }
  }
  __syncwarp();
  return count;
}

// The number of those in memory.equal before it that are kept.
__device__ inline int KeptBefore(const KeepMemory& memory, int at) {
  int kept = 0;
  for (int w = 0; w < at / 32; ++w) kept += __popc(memory.is_kept[w]);
  if (at % 32 != 0) kept += __popc(memory.is_kept[at / 32] & ((1u << at % 32) - 1));
  return kept;
}

// Which of memory.equal are among the `wanted` largest. A warp has one of them at a time. Needs a
// SyncBlock of them before it; ends with another one.
__device__ inline void RankEqual(const Team& team, KeepMemory& memory, int wanted) {
  const int size = memory.in_bin;
  for (int e = team.thread() / kWarpSize; e < size; e += team.threads() / kWarpSize) {
    const uint64_t mine = memory.equal[e];
    int larger = 0;
    for (int first = 0; first < size; first += kWarpSize) {
      const int other = first + team.lane();
      larger += __popc(__ballot_sync(~0u, other < size && memory.equal[other] > mine));
    }
    if (team.lane() == 0 && larger < wanted) atomicOr(&memory.is_kept[e / 32], 1u << e % 32);
  }
  team.SyncBlock();
}

// put(place, index) for the first target.wanted of what the blocks have marked, in the order of
// indices. range: about that of their scores. Called after the marks of this warp. Undecided, with
// nothing put: fewer are marked than target.wanted, or more than there is room for; NaN; no such
// range; many in few tiles; many scores close or equal to that of rank `wanted`. list: of this
// block, with room for target.capacity keys.
template <bool kShares, DType kDType, typename Put>
__device__ bool KeepOwn(const Team& team, ScanMemory& scan_memory, KeepMemory& memory,
                        const TiledRow<kDType>& row, const uint32_t* words, const KeyRange& range,
                        const TopkTarget& target, int32_t* list, Put put) {
  if (!range.IsFinite() || range.lowest >= range.highest) return false;
  const int room =
      min((2 * target.capacity) >> ShiftOf(team.threads() / kWarpSize), kHeld * kWarpSize);
  int32_t* const of_warp = list + team.thread() / kWarpSize * room;
  __syncwarp();
  const int count = ListOfWarp<kShares>(team, row, words, of_warp, room);
  if (count > room && team.lane() == 0) {
    atomicOr(&memory.mine[kKeepBins / 2 - 1], 1u << 16);
  }
  const int share = count > room ? 0 : ShareOf(count, 5);
  const int first = team.lane() * share;
  const int mine = min(max(count - first, 0), share);
  float x[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= share) break;  // all lanes
    if (i < mine) x[i] = row.ScoreAt(of_warp[first + i]);
  }
  const CandidateBins of(range);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= share) break;
    if (i >= mine) continue;
    const int bin = of.Of(x[i]);
    atomicAdd(&memory.mine[bin / 2], bin % 2 == 0 ? 1u : 1u << 16);
    if (semantics::IsNan(x[i])) atomicOr(&memory.mine[kKeepBins / 2 - 1], 1u << 16);
  }
  team.SyncBlock();
  const KeepMemory::Bins* bins = &memory.mine;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() > 1) {
    SendBins(team, memory);
    AwaitBarrier(&memory.counted, 0);
    bins = memory.bins;
  }
#endif
  BlockScan scan(team.Block(), scan_memory);
  FindBin(team, scan, bins, memory, target);
  const int found = memory.bin;
  if (found < 0 || memory.total < 0) return false;

  uint32_t beyond = 0;  // above the bin, and in it in the high half
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= share) break;
    const int bin = i < mine ? of.Of(x[i]) : -1;
    beyond += bin > found ? 1 : bin == found ? 1u << 16 : 0;
  }
  const BlockScan::Sums sums = scan.Add(beyond);
  const uint32_t of_block = team.lane() < team.rank() ? CountIn(bins[team.lane()], found) : 0;
  int slot = static_cast<int>((sums.before >> 16) + __reduce_add_sync(~0u, of_block));
  const int first_slot = slot;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() > 1) {
    if (team.thread() == 0) {
      ExpectBytes(&memory.ranked, memory.in_bin * static_cast<int>(sizeof(uint64_t)) +
                                      team.blocks() * static_cast<int>(sizeof(uint32_t)));
    }
    if (team.thread() < team.blocks()) {
      SendWord(team.thread(), &memory.above_of_block[team.rank()], sums.all & 0xffffu,
               &memory.ranked);
    }
  }
#endif
  if (beyond >> 16 != 0) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (i >= mine || of.Of(x[i]) != found) continue;
      const uint64_t candidate = KeyOfToken(x[i], of_warp[first + i]);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      for (int r = 0; team.blocks() > 1 && r < team.blocks(); ++r) {
        LongsOf(r, memory.equal, &memory.ranked).Send(slot, candidate);
      }
#endif
      if (team.blocks() == 1) memory.equal[slot] = candidate;
      ++slot;
    }
  }
  int before = 0;  // above the bin, in the blocks before this one
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() > 1) {
    AwaitBarrier(&memory.ranked, 0);
    const uint32_t above = team.lane() < team.rank() ? memory.above_of_block[team.lane()] : 0;
    before = static_cast<int>(__reduce_add_sync(~0u, above));
  }
#endif
  if (team.blocks() == 1) team.SyncBlock();
  RankEqual(team, memory, target.wanted - memory.above);
  if (beyond == 0) return true;
  slot = first_slot;
  int place = before + static_cast<int>(sums.before & 0xffffu) + KeptBefore(memory, slot);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= share) break;
    if (i >= mine) continue;
    const int bin = of.Of(x[i]);
    bool is_kept = bin > found;
    if (bin == found) {
      is_kept = (memory.is_kept[slot / 32] >> slot % 32 & 1) != 0;
      ++slot;
    }
    if (is_kept) put(place++, of_warp[first + i]);
  }
  return true;
}

// put(place, index) for all that is marked, which is the answer, each block its own.
template <DType kDType, typename Put>
__device__ void PutMarked(const Team& team, const TiledRow<kDType>& row, const TeamCount& count,
                          const uint32_t* words, Put put) {
  const WordRange range(team, row.words());
  int place = count.before + count.before_thread;
  for (int w = range.first; w < range.end; ++w) {
    for (uint32_t left = words[w]; left != 0; left &= left - 1) {
      put(place++, row.IndexAt(w * 32 + __ffs(static_cast<int>(left)) - 1));
    }
  }
}

}  // namespace sluice::cuda
