// The last phase of topk by all blocks of a cluster, each for its own candidates, so that nothing
// is gathered and no block has more to do than the others:
//
//   each: how many of its candidates are in which bin, to all
//     -> each: in which bin the k-th falls; its few candidates of that bin, and how many it has
//        beyond it, to all
//       -> each: writes its own.
//
// Two messages one after the other, 600 cycles each, in place of the 6000 of one block with all.
#pragma once

#include "select/topk_refine.cuh"
#include "select/topk_verify.cuh"

namespace sluice::cuda {

inline constexpr int kExchangeBins = 512;
inline constexpr int kHeld = 8;  // candidates of a thread

// In shared memory.
struct ExchangeMemory {
  // Of a block, two bins in a word; the last one is no bin, but not 0 where the block has NaN or
  // more candidates than its threads can hold.
  using Bins = uint32_t[kExchangeBins / 2];

  alignas(16) Bins mine;
  alignas(16) Bins bins[kMostBlocks];  // from all
  uint64_t few[kMostBlocks][kFew];     // of the bin of the wanted-th, from all
  uint32_t of_block[kMostBlocks];      // candidates above that bin, and in it in the high half
  int bin;                             // that bin; -1: undecided
  int above;
  int in_bin;
  int total;
  uint64_t counted, ranked;  // barriers of the two messages
};

// Before ArriveStarted.
__device__ inline void BeginExchange(const Team& team, ExchangeMemory& memory) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() == 1) return;
  for (int i = team.thread(); i < kExchangeBins / 2; i += team.threads()) memory.mine[i] = 0;
  if (team.thread() == 0) {
    memory.bin = -1;
    StartBarrier(&memory.counted);
    ExpectBytes(&memory.counted, team.blocks() * static_cast<int>(sizeof(memory.mine)));
    StartBarrier(&memory.ranked);
  }
#endif
}

__device__ inline uint32_t FirstOnes(int n) { return n >= 32 ? ~0u : (1u << n) - 1; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Sends the bins of this block to all.
__device__ inline void SendBins(const Team& team, ExchangeMemory& memory) {
  constexpr int kVectors = sizeof(memory.mine) / sizeof(int4);
  for (int i = team.thread(); i < team.blocks() * kVectors; i += team.threads()) {
    const int to = i / kVectors;
    const int vector = i % kVectors;
    SendThere(PlaceIn(to, memory.bins[team.rank()]) + vector * static_cast<uint32_t>(sizeof(int4)),
              reinterpret_cast<const int4*>(memory.mine)[vector], PlaceIn(to, &memory.counted));
  }
}

// Finds the bin of the wanted-th among the bins of all blocks.
__device__ inline void FindBin(const Team& team, BlockScan& scan, ExchangeMemory& memory,
                               const RowWish& wish) {
  constexpr int kWords = kExchangeBins / 2;
  const int word = kWords - 1 - team.thread();  // the first thread has the largest
  uint32_t low = 0, high = 0;
  if (word >= 0) {
    for (int r = 0; r < team.blocks(); ++r) {
      const uint32_t two = memory.bins[r][word];
      low += two & 0xffffu;
      high += two >> 16;
    }
  }
  const bool is_undecided = word == kWords - 1 && high != 0;
  if (word == kWords - 1) high = 0;
  const BlockScan::Sums sums = scan.Add(low + high);
  const auto total = static_cast<int>(sums.all);
  const auto rank = static_cast<uint32_t>(wish.wanted);
  const bool is_enough = total >= wish.wanted && total <= wish.capacity;
  const bool is_higher = sums.before + high >= rank;
  const uint32_t in_bin = is_higher ? high : low;
  if (is_enough && sums.before < rank && rank <= sums.before + high + low && in_bin <= kFew) {
    memory.bin = 2 * word + (is_higher ? 1 : 0);
    memory.above = static_cast<int>(is_higher ? sums.before : sums.before + high);
    memory.in_bin = static_cast<int>(in_bin);
  }
  if (team.thread() == 0) memory.total = is_undecided ? -1 : total;
  team.SyncBlock();
}
#endif

// put(place, index) for the first wish.wanted of what the blocks have marked, in the order of
// indices. range: about that of their scores. count: of this block. Undecided, with nothing put:
// fewer are marked than are wanted, or more than there is room for; NaN; no such range; many scores
// close to the wanted-th or equal to it. list: of this block.
template <DType kDType, typename Put>
__device__ bool KeepByExchange(const Team& team, ScanMemory& scan_memory, ExchangeMemory& memory,
                               VerifyMemory& verify, const TiledRow<kDType>& row,
                               const uint32_t* words, TeamCount count, const KeyRange& range,
                               const RowWish& wish, uint64_t* list, Put put) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() == 1 || !range.IsFinite() || range.lowest >= range.highest) return false;
  const int share = ShareOf(count.mine, ShiftOf(team.threads()));
  const bool does_hold = count.mine <= wish.capacity && share <= kHeld;
  if (does_hold) {
    ListMarked(team, row, count, words, list);
  } else if (team.thread() == 0) {
    memory.mine[kExchangeBins / 2 - 1] = 1u << 16;
  }
  team.SyncBlock();
  const ScoreBins of(semantics::ValueOfKey(range.lowest), semantics::ValueOfKey(range.highest));
  uint64_t held[kHeld] = {};
  int bin[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int at = team.thread() * share + i;
    bin[i] = -1;
    if (!does_hold || i >= share || at >= count.mine) continue;
    const int index = static_cast<int>(list[at]);
    const float x = row.ScoreAt(index);
    held[i] = KeyOfToken(x, index);
    bin[i] = min(of.Of(x) / (kRankBins / kExchangeBins), kExchangeBins - 2);
    atomicAdd(&memory.mine[bin[i] / 2], bin[i] % 2 == 0 ? 1u : 1u << 16);
    if (semantics::IsNan(x)) atomicOr(&memory.mine[kExchangeBins / 2 - 1], 1u << 16);
  }
  team.SyncBlock();
  SendBins(team, memory);
  AddSentCounts(team, verify, count);  // nobody goes while something may come
  AwaitBarrier(&memory.counted, 0);
  BlockScan scan(team.Block(), scan_memory);
  FindBin(team, scan, memory, wish);
  const int found = memory.bin;
  if (found < 0 || memory.total < 0) return false;

  uint32_t mine = 0;  // above the bin, and in it in the high half
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    mine += bin[i] > found ? 1 : bin[i] == found ? 1u << 16 : 0;
  }
  const BlockScan::Sums sums = scan.Add(mine);
  const int in_bin = memory.in_bin;
  if (team.thread() == 0) {
    ExpectBytes(&memory.ranked, in_bin * static_cast<int>(sizeof(uint64_t)) +
                                    team.blocks() * static_cast<int>(sizeof(uint32_t)));
  }
  if (team.thread() < team.blocks()) {
    SendWord(team.thread(), &memory.of_block[team.rank()], sums.all, &memory.ranked);
  }
  const int equal_before = static_cast<int>(sums.before >> 16);
  if (mine >> 16 != 0) {
    int slot = equal_before;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (bin[i] != found) continue;
      for (int r = 0; r < team.blocks(); ++r) {
        LongsOf(r, memory.few[team.rank()], &memory.ranked).Send(slot, held[i]);
      }
      ++slot;
    }
  }
  AwaitBarrier(&memory.ranked, 0);

  // A lane has one of the few, in the order of blocks.
  const uint32_t of_block = team.lane() < team.blocks() ? memory.of_block[team.lane()] : 0;
  int few_before = 0;  // in blocks before this one
  uint64_t few = 0;
  int next = 0;
  for (int r = 0; r < team.blocks(); ++r) {
    const int there = static_cast<int>(memory.of_block[r] >> 16);
    if (team.lane() >= next && team.lane() < next + there) few = memory.few[r][team.lane() - next];
    if (r == team.rank()) few_before = next;
    next += there;
  }
  int larger = 0;
  for (int i = 0; i < in_bin; ++i) larger += __shfl_sync(~0u, few, i) > few ? 1 : 0;
  const uint32_t kept =
      __ballot_sync(~0u, team.lane() < in_bin && larger < wish.wanted - memory.above);
  const int above_before =
      static_cast<int>(__reduce_add_sync(~0u, team.lane() < team.rank() ? of_block & 0xffffu : 0));
  const uint32_t kept_here = few_before < 32 ? kept >> few_before : 0;
  int place = above_before + __popc(kept & FirstOnes(few_before)) +
              static_cast<int>(sums.before & 0xffffu) + __popc(kept_here & FirstOnes(equal_before));
  int slot = equal_before;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    bool is_kept = bin[i] > found;
    if (bin[i] == found) is_kept = (kept_here >> slot++ & 1) != 0;
    if (is_kept) put(place++, IdOf(held[i]));
  }
  return true;
#else
  return false;
#endif
}

}  // namespace sluice::cuda
