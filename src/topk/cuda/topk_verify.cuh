// The verify phase of topk: thresholds are tried until one leaves at least as many scores as the
// call needs and at most as many as there is room for; what reaches it stays marked. Where more
// scores than that equal the one of rank `wanted`, the larger ones are marked, and then the first
// of those, for which some of the row is read again.
#pragma once

#include "sluice/cuda/topk.hpp"
#include "topk/cuda/topk_guess.cuh"

namespace sluice::cuda {

inline constexpr int kMostReads = 6;  // of a row by guesses

// In shared memory.
struct VerifyMemory {
  Tie tie;                             // of the last guess that had one
  float hinted_least;                  // score
  uint64_t counted;                    // the barrier of `first_counts`
  uint32_t first_counts[kMostBlocks];  // of the blocks, in the first read
  uint32_t counts[2][kMostBlocks];     // in further reads by turns
};

struct TopkTarget {
  int wanted;
  int capacity;
};

// What has been marked, and by which blocks.
struct TeamCount {
  int before_thread;  // in this thread's WordRange, by the threads before it
  int before;         // by the blocks before this one
  int mine;           // by this block
  int total;

  __device__ bool IsEnough(const TopkTarget& target) const {
    return total >= target.wanted && total <= target.capacity;
  }
};

struct Verified {
  bool is_kept;  // the answer is written
  bool is_done;  // else the definition is to decide
  bool has_nan;
  KeyRange range;  // about that of the scores that are marked, if it is known
  TeamCount count;
  TopkWay way;
  int reads;
  float threshold;  // that left what is marked; of a plateau, no matter what
};

// For bins of the scores from a threshold on, of unknown maximum. A score of rank `wanted` that
// lies beyond them is in the last bin, with too many others.
__device__ inline KeyRange RangeFrom(float threshold) {
  const float high = threshold + 0.5f * fabsf(threshold);
  return {semantics::OrderKey(threshold), semantics::OrderKey(high)};
}

// The threshold that the next call with the next scores of this row starts from: a count that is
// close to what is not believed would often leave it with two reads.
__device__ inline float ThresholdForNext(const Verified& verified, int count,
                                         const TopkTarget& target) {
  const bool is_amid =
      count >= target.wanted + target.wanted / 8 && count <= target.capacity - target.capacity / 8;
  return verified.way == TopkWay::kCandidates && is_amid ? verified.threshold : NAN;
}

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

// Counts over this block. After a SyncBlock of the words.
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

// The indices of what this block has marked, in their order.
template <DType kDType>
__device__ void ListMarked(const Team& team, const TiledRow<kDType>& row, const TeamCount& count,
                           const uint32_t* words, uint64_t* list) {
  const WordRange range(team, row.words());
  int place = count.before_thread;
#pragma unroll 4
  for (int w = range.first; w < range.end; ++w) {
    for (uint32_t left = words[w]; left != 0; left &= left - 1) {
      const int bit = w * 32 + __ffs(static_cast<int>(left)) - 1;
      list[place++] = static_cast<uint64_t>(row.IndexAt(bit));
    }
  }
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

// Sends the other blocks what this one has counted in the first read, and adds what they have:
// words that are sent with their own arrival take half the time of a Sync.
__device__ inline void ExchangeCounts(const Team& team, VerifyMemory& memory, TeamCount& count) {
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

// Leaves the marks of larger scores and those of the first `ties` of the others. `before`: of the
// others, by the threads before this one. Returns how many of them are kept there.
__device__ inline int KeepFirstTies(const uint32_t* reaching, uint32_t* larger, int first, int end,
                                    int before, int ties) {
  int left = ties - before;
  for (int w = first; w < end && left > 0; ++w) {
    const uint32_t equal = reaching[w] & ~larger[w];
    larger[w] |= FirstBits(equal, left);
    left -= __popc(equal);
  }
  return min(before, ties);
}

// MarkReaching in a function of its own, so that what else is seldom needed leaves it registers.
template <DType kDType>
__device__ __noinline__ void MarkAgain(Team team, TiledRow<kDType> row, float threshold,
                                       uint32_t* words, int most) {
  row.template MarkReaching<false>(team, threshold, words, most);
}

// A count that says of its block: NaN is marked. More than all scores of a row; of all blocks, less
// than 2^31.
inline constexpr int kHasNan = 1 << 27;

// Marks the ties that follow the larger marked scores, as many as are missing: the first ones, so
// that some of the row from its start on is enough, how much the sample says. Returns whether there
// are that many. count.total from kHasNan on: there is NaN among the larger ones.
template <DType kDType>
__device__ bool MarkTies(const Team& team, ScanMemory& scan_memory, VerifyMemory& memory,
                         const TiledRow<kDType>& row, const Tie& tie, int wanted, int reads,
                         int words, uint32_t* larger, TeamCount& count) {
  uint32_t* const reaching = larger + words;
  const WordRange range(team, row.words());
  const int missing = wanted - count.total;
  bool has_nan = false;
  for (int w = range.first; w < range.end; ++w) {
    for (uint32_t left = larger[w]; left != 0; left &= left - 1) {
      has_nan |=
          semantics::IsNan(row.ScoreAt(row.IndexAt(w * 32 + __ffs(static_cast<int>(left)) - 1)));
    }
  }
  const int nan_mark = team.Block().CountOfBlock(has_nan) != 0 ? kHasNan : 0;
  const float scores = __fdividef(static_cast<float>(missing), tie.share);
  int tiles = static_cast<int>(fminf(1.25f * scores, 1e9f)) / kTileScores + 2;
#pragma unroll 1
  for (int turn = reads + 1;; ++turn) {
    const int words_here = row.WordsOfFirst(tiles);
    MarkAgain(team, row, tie.score, reaching, words_here);
    team.SyncBlock();
    const int end = min(range.end, words_here);
    uint32_t mine = 0;
    for (int w = range.first; w < end; ++w) {
      mine += static_cast<uint32_t>(__popc(reaching[w] & ~larger[w]));
    }
    BlockScan scan(team.Block(), scan_memory);
    const BlockScan::Sums sums = scan.Add(mine);
    const int of_block = static_cast<int>(sums.all) + nan_mark;
    TeamCount ties{static_cast<int>(sums.before), 0, of_block, of_block};
    AddBlocksAgain(team, memory, turn, ties);
    if (ties.total >= kHasNan) {
      count.total = ties.total;
      return true;
    }
    if (ties.total >= missing) {
      const int here = min(max(missing - ties.before, 0), ties.mine);
      const int before_thread =
          KeepFirstTies(reaching, larger, range.first, end, ties.before_thread, here);
      count = {count.before_thread + before_thread, count.before + min(ties.before, missing),
               count.mine + here, wanted};
      return true;
    }
    if (tiles >= row.Tiles()) {
      count.total += ties.total;  // all that reach the tie
      team.Sync();                // before the next read writes its counts
      return false;
    }
    tiles = row.Tiles();
  }
}

// Two thresholds, of which one leaves too many scores and one too few.
struct Bracket {
  float low;
  float high;
  int low_count;
  int high_count;
  bool has_low = false;  // a read has said so, else it is the range of what was hinted
  bool has_high = false;

  __device__ bool IsInside(float threshold) const {
    return (!has_low || threshold > low) && (!has_high || threshold < high);
  }
  // Where the count would be the goal if it fell in a straight line.
  __device__ float Secant(float goal) const {
    const float share =
        __fdividef(static_cast<float>(low_count) - goal,
                   fmaxf(static_cast<float>(low_count) - static_cast<float>(high_count), 1.0f));
    return low + (high - low) * share;
  }
};

// Further thresholds, after one that left too many scores or too few. Not inline: its registers
// burden no row that takes one read. secants: how many guesses are made that way.
template <DType kDType>
__device__ __noinline__ Verified VerifyAgain(Team team, ScanMemory& scan_memory,
                                             VerifyMemory& memory, BinMemory& bins,
                                             TiledRow<kDType> row, TopkTarget target, Guess guess,
                                             TeamCount count, bool is_hinted, int secants,
                                             uint32_t* plane, int words) {
  const Team block = team.Block();
  const WordRange range(team, row.words());
  const float goal = sqrtf(static_cast<float>(target.wanted) * static_cast<float>(target.capacity));
  Bracket bracket{memory.hinted_least, semantics::ValueOfKey(guess.range.highest), row.Scores(), 0};
  float rank_scale = 1.0f;
  Verified verified{};
  verified.way = TopkWay::kCandidates;
#pragma unroll 1
  for (verified.reads = 1;; ++verified.reads) {
    const Tie tie = memory.tie;
    if (guess.is_tie && guess.threshold > tie.score && count.total < target.wanted) {
      verified.is_done = MarkTies(team, scan_memory, memory, row, tie, target.wanted,
                                  verified.reads, words, plane, count);
      if (verified.is_done) {
        verified.has_nan = count.total >= kHasNan;
        verified.way = TopkWay::kPlateau;
        verified.count = count;
        break;
      }
      guess.threshold = tie.score;
    }
    if (verified.reads == kMostReads) break;
    const bool are_few = count.total < target.wanted;
    if (are_few) {
      bracket.high = guess.threshold;
      bracket.high_count = count.total;
      bracket.has_high = true;
    } else {
      bracket.low = guess.threshold;
      bracket.low_count = count.total;
      bracket.has_low = true;
    }
    const float secant = bracket.Secant(goal);
    if (!are_few && guess.is_tie && guess.threshold == tie.score) {
      guess.threshold = NextScore(tie.score);
    } else if (secants > 0 && bracket.IsInside(secant) && fabsf(secant) < INFINITY) {
      --secants;
      guess = {secant, false};
    } else {
      const RowSample<kDType> sample(block, row);
      const float share = goal / fmaxf(static_cast<float>(count.total), 1.0f);
      if (!is_hinted) rank_scale *= fminf(share, 64.0f);
      is_hinted = false;  // what the count says of a rank, from now on
      const auto rank = static_cast<float>(
          RankInSample(sample.scores(), row.Scores(), target.wanted, target.capacity));
      block.SyncBlock();
      ZeroBins(block, bins);
      guess = GuessFromSample(block, scan_memory, bins, memory.tie, sample,
                              static_cast<uint32_t>(fmaxf(rank * rank_scale + 0.5f, 1.0f)),
                              RoomInSample(sample.scores(), row.Scores(), target.capacity), [] {});
    }
    verified.has_nan = guess.has_nan;
    if (guess.has_nan || !bracket.IsInside(guess.threshold)) break;

    MarkAgain(team, row, guess.threshold, plane, INT_MAX);
    block.SyncBlock();
    BlockScan scan(block, scan_memory);
    count = CountOverBlock(scan, plane, range);
    AddBlocksAgain(team, memory, verified.reads + 1, count);
    if (count.IsEnough(target)) {
      verified.is_done = true;
      verified.range = guess.range;
      verified.threshold = guess.threshold;
      verified.count = count;
      ++verified.reads;
      break;
    }
  }
  block.SyncBlock();
  return verified;
}

// For rows of more scores than there is room for. plane: room for the marks of this block, twice;
// the final marks are in the first. bins: zero after the next SyncBlock. kLoadsAhead: whether a
// warp has the registers to load its first tile while the threshold is found. keep(range): what
// follows the first read, without a count; whether that was all.
template <bool kLoadsAhead, DType kDType, typename Keep>
__device__ Verified Verify(const Team& team, ScanMemory& scan_memory, VerifyMemory& memory,
                           BinMemory& bins, const TiledRow<kDType>& row, const TopkTarget& target,
                           const RowHint& hint, uint32_t* plane, int words, Keep keep) {
  constexpr int kMostSecants = 3;  // then as others, which end
  Verified verified{};
  verified.way = TopkWay::kCandidates;
  if (target.wanted > target.capacity) return verified;
  const Team block = team.Block();
  Guess guess{hint.threshold, false};
  bool is_hinted = !semantics::IsNan(guess.threshold);
  typename TiledRow<kDType>::Ahead ahead;
  if (is_hinted) {
    block.SyncBlock();  // what `keep` adds to is 0: without a sample there is no barrier before it
    team.ArriveStarted();
  } else {
    const RowSample<kDType> sample(block, row);
    team.ArriveStarted();  // while that is on its way
    if (hint.indices != nullptr) {
      guess = GuessFromHint(block, scan_memory, row, hint, memory.hinted_least);
    }
    is_hinted = !semantics::IsNan(guess.threshold) || guess.has_nan;
    if (!is_hinted) {
      guess = GuessFromSample(
          block, scan_memory, bins, memory.tie, sample,
          RankInSample(sample.scores(), row.Scores(), target.wanted, target.capacity),
          RoomInSample(sample.scores(), row.Scores(), target.capacity), [&] {
            if constexpr (kLoadsAhead) row.LoadAhead(team, ahead);
          });
    }
  }
  team.AwaitStarted();
  verified.has_nan = guess.has_nan;
  if (verified.has_nan) return verified;
  row.template MarkReaching<kLoadsAhead>(team, guess.threshold, plane, INT_MAX, ahead);
  verified.reads = 1;
  verified.threshold = guess.threshold;
  verified.is_kept =
      keep(is_hinted && !guess.range.IsKnown() ? RangeFrom(guess.threshold) : guess.range);
  if (verified.is_kept) return verified;
  block.SyncBlock();
  TeamCount count;
  {
    BlockScan scan(block, scan_memory);
    count = CountOverBlock(scan, plane, WordRange(team, row.words()));
  }
  ExchangeCounts(team, memory, count);
  if (!count.IsEnough(target)) {
    return VerifyAgain(team, scan_memory, memory, bins, row, target, guess, count, is_hinted,
                       is_hinted && hint.is_secant ? kMostSecants : 0, plane, words);
  }
  verified.is_done = true;
  verified.range = guess.range;
  verified.count = count;
  return verified;
}

}  // namespace sluice::cuda
