// The verify phase of topk: thresholds are tried until one leaves at least as many scores as are
// wanted and at most as many as there is room for; what reaches it stays marked. Where more scores
// than that equal the wanted rank's, the marks tell them from the larger ones, and the first of
// them are kept.
#pragma once

#include "select/topk_guess.cuh"
#include "sluice/cuda_topk.hpp"

namespace sluice::cuda {

inline constexpr int kMostReads = 6;  // of a row by guesses

// In shared memory.
struct VerifyMemory {
  uint64_t counted;                    // the barrier of `first_counts`
  uint32_t first_counts[kMostBlocks];  // of the blocks, in the first read
  uint32_t counts[2][kMostBlocks];     // in further reads by turns
};

struct RowWish {
  int wanted;
  int capacity;
};

// What is marked by whom.
struct TeamCount {
  int before_thread;  // in this thread's WordRange, by the threads before it
  int before;         // by the blocks before this one
  int mine;           // by this block
  int total;

  __device__ bool IsEnough(const RowWish& wish) const {
    return total >= wish.wanted && total <= wish.capacity;
  }
};

struct Verified {
  bool is_done;  // else the definition is to decide
  bool has_nan;
  bool is_in_second_plane;  // what is marked
  KeyRange range;           // about that of the scores that are marked
  TeamCount count;
  TopkWay way;
  int reads;
};

// This thread's words of a block: neighbours, in the order of threads.
struct WordRange {
  __device__ WordRange(const Team& team, int words) {
    const int share = ShareOf(words, ShiftOf(team.threads())) | 1;  // odd: no bank conflicts
    first = min(team.thread() * share, words);
    end = min(first + share, words);
  }
  int first;
  int end;
};

// Of this block. Behind a SyncBlock of the words.
__device__ inline TeamCount CountOverBlock(BlockScan& scan, const uint32_t* words,
                                           const WordRange& range) {
  uint32_t marked = 0;
#pragma unroll 4
  for (int w = range.first; w < range.end; ++w) marked += static_cast<uint32_t>(__popc(words[w]));
  const BlockScan::Sums sums = scan.Add(marked);
  const int mine = static_cast<int>(sums.all);
  return {static_cast<int>(sums.before), 0, mine, mine};
}

__device__ inline void AddBlocks(const Team& team, const uint32_t* counts, TeamCount& count) {
  const uint32_t of_block = team.lane() < team.blocks() ? counts[team.lane()] : 0;
  count.total = static_cast<int>(__reduce_add_sync(~0u, of_block));
  count.before = static_cast<int>(__reduce_add_sync(~0u, team.lane() < team.rank() ? of_block : 0));
}

// Before ArriveStarted.
__device__ inline void BeginVerify(const Team& team, VerifyMemory& memory) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.thread() == 0 && team.blocks() > 1) {
    StartBarrier(&memory.counted);
    ExpectBytes(&memory.counted, team.blocks() * static_cast<int>(sizeof(uint32_t)));
  }
#endif
}

// Adds what the other blocks have counted, in the first read: words that are sent with their own
// arrival take half the time of a Sync.
__device__ inline void AddBlocksOnce(const Team& team, VerifyMemory& memory, TeamCount& count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() == 1) return;
  if (team.thread() < team.blocks()) {
    SendWord(team.thread(), &memory.first_counts[team.rank()], static_cast<uint32_t>(count.mine),
             &memory.counted);
  }
  AwaitBarrier(&memory.counted, 0);
  AddBlocks(team, memory.first_counts, count);
#endif
}

// In further reads.
__device__ inline void AddBlocksAgain(const Team& team, VerifyMemory& memory, int read,
                                      TeamCount& count) {
  if (team.blocks() == 1) return;
  uint32_t* counts = memory.counts[read % 2];
  if (team.thread() < team.blocks()) {
    *team.Of(team.thread(), &counts[team.rank()]) = static_cast<uint32_t>(count.mine);
  }
  team.Sync();
  AddBlocks(team, counts, count);
}

// The first `most` bits.
__device__ inline uint32_t FirstBits(uint32_t bits, int most) {
  const int extra = __popc(bits) - max(most, 0);
  for (int i = 0; i < extra; ++i) bits &= ~(0x80000000u >> __clz(static_cast<int>(bits)));
  return bits;
}

// Leaves the marks of larger scores and those of the first `ties` equal ones of the block.
// Returns how many of this block are kept in words before this thread's.
__device__ inline int KeepFirstTies(BlockScan& scan, const uint32_t* reaching, uint32_t* larger,
                                    const WordRange& range, int ties) {
  uint32_t mine = 0;
  for (int w = range.first; w < range.end; ++w) {
    mine += static_cast<uint32_t>(__popc(reaching[w] & ~larger[w]));
  }
  const int before = static_cast<int>(scan.Add(mine).before);
  int left = ties - before;
  for (int w = range.first; w < range.end && left > 0; ++w) {
    const uint32_t equal = reaching[w] & ~larger[w];
    larger[w] |= FirstBits(equal, left);
    left -= __popc(equal);
  }
  return min(before, ties);
}

// MarkReaching in a function of its own, so that what else is seldom needed leaves it registers.
template <DType kDType>
__device__ __noinline__ void MarkAgain(Team team, TiledRow<kDType> row, float threshold,
                                       uint32_t* words) {
  row.MarkReaching(team, threshold, words);
}

// What is known of a row from a threshold that left too many scores or too few.
struct FirstRead {
  Guess guess;
  TeamCount count;
  uint32_t rank;  // in the sample; 0: the guess was another's
};

// Further thresholds, between those that are known to leave too many and too few.
template <DType kDType>
__device__ __noinline__ Verified VerifyAgain(Team team, ScanMemory& scan_memory,
                                             VerifyMemory& memory, BinMemory& bins,
                                             TiledRow<kDType> row, RowWish wish, FirstRead known,
                                             uint32_t* planes, int words) {
  const Team block = team.Block();
  const WordRange range(team, row.words());
  const float goal = sqrtf(static_cast<float>(wish.wanted) * static_cast<float>(wish.capacity));
  Verified verified{};
  verified.way = TopkWay::kCandidates;
  Guess guess = known.guess;
  TeamCount count = known.count;
  TeamCount of_low{};
  uint32_t rank = known.rank;
  int plane = 0;                           // which was marked last
  float low = -INFINITY, high = INFINITY;  // too many reach it, too few
  bool has_low = false, has_high = false;
#pragma unroll 1
  for (verified.reads = 1; verified.reads < kMostReads; ++verified.reads) {
    if (count.total < wish.wanted) {
      high = guess.threshold;
      has_high = true;
    } else {  // keep these marks
      low = guess.threshold;
      has_low = true;
      of_low = count;
      plane ^= 1;
    }
    // Many equal scores: is it they that are too many?
    const bool is_next = guess.is_tie && has_low && low == guess.threshold && low < INFINITY;
    if (is_next) {
      guess = {semantics::ValueOfKey(semantics::OrderKey(low) + 1), false, false};
    } else {
      const RowSample<kDType> sample(block, row);
      if (rank == 0) {
        rank = RankInSample(sample.scores(), row.Scores(), wish.wanted, wish.capacity);
      } else {
        const float share = goal / fmaxf(static_cast<float>(count.total), 1.0f);
        rank = static_cast<uint32_t>(
            fmaxf(static_cast<float>(rank) * fminf(share, 64.0f) + 0.5f, 1.0f));
      }
      block.SyncBlock();
      guess = GuessFromSample(block, scan_memory, bins, sample, rank);
    }
    if (guess.has_nan) {
      verified.has_nan = true;
      break;
    }
    if ((has_low && guess.threshold <= low) || (has_high && guess.threshold >= high)) break;

    uint32_t* const marked = planes + plane * words;
    MarkAgain(team, row, guess.threshold, marked);
    block.SyncBlock();
    BlockScan scan(block, scan_memory);
    count = CountOverBlock(scan, marked, range);
    AddBlocksAgain(team, memory, verified.reads, count);
    const bool is_plateau = is_next && count.total < wish.wanted;
    if (!is_plateau && !count.IsEnough(wish)) continue;
    verified.is_done = true;
    verified.range = guess.range;
    verified.is_in_second_plane = plane == 1;
    verified.count = count;
    ++verified.reads;
    if (is_plateau) {
      const int ties = wish.wanted - count.total;
      const int before = of_low.before - count.before;
      const int here = min(max(ties - before, 0), of_low.mine - count.mine);
      const int before_thread =
          KeepFirstTies(scan, planes + (plane ^ 1) * words, marked, range, here);
      verified.way = TopkWay::kPlateau;
      verified.count = {count.before_thread + before_thread, count.before + min(before, ties),
                        count.mine + here, wish.wanted};
    }
    break;
  }
  block.SyncBlock();
  return verified;
}

// For rows of more scores than there is room for. planes: room for the marks of this block, twice.
template <DType kDType>
__device__ Verified Verify(const Team& team, ScanMemory& scan_memory, VerifyMemory& memory,
                           BinMemory& bins, const TiledRow<kDType>& row, const RowWish& wish,
                           const RowHint& hint, uint32_t* planes, int words) {
  Verified verified{};
  verified.way = TopkWay::kCandidates;
  if (wish.wanted > wish.capacity) return verified;
  const Team block = team.Block();
  FirstRead first{{NAN, false, false}, {}, 0};
  if (hint.indices != nullptr) first.guess = GuessFromHint(block, row, hint);
  if (semantics::IsNan(first.guess.threshold) && !first.guess.has_nan) {
    const RowSample<kDType> sample(block, row);
    first.rank = RankInSample(sample.scores(), row.Scores(), wish.wanted, wish.capacity);
    first.guess = GuessFromSample(block, scan_memory, bins, sample, first.rank);
  }
  verified.has_nan = first.guess.has_nan;
  if (verified.has_nan) return verified;
  row.MarkReaching(team, first.guess.threshold, planes);
  block.SyncBlock();
  BlockScan scan(block, scan_memory);
  first.count = CountOverBlock(scan, planes, WordRange(team, row.words()));
  AddBlocksOnce(team, memory, first.count);
  if (!first.count.IsEnough(wish)) {
    return VerifyAgain(team, scan_memory, memory, bins, row, wish, first, planes, words);
  }
  verified.is_done = true;
  verified.range = first.guess.range;
  verified.count = first.count;
  verified.reads = 1;
  return verified;
}

}  // namespace sluice::cuda
