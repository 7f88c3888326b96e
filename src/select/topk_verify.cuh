// The verify phase of topk: thresholds are tried until one leaves at least as many scores as are
// wanted and at most as many as there is room for; what reaches it stays marked. Where more scores
// than that equal the wanted rank's, the larger ones are marked, and then the first of those, for
// which some of the row is read again.
#pragma once

#include "select/topk_guess.cuh"
#include "sluice/cuda_topk.hpp"

namespace sluice::cuda {

inline constexpr int kMostReads = 6;  // of a row by guesses

// What is known of a row from reads before, the same for all threads of a team.
struct VerifyState {
  Guess guess;        // of the last read
  uint32_t rank;      // in the sample; 0: it was not looked at
  float low, high;    // too many reach it, too few; before that, the range of what was hinted
  int low_count;      // how many
  int high_count;
  bool has_low, has_high;  // a read has said so
  bool is_secant;
};

// In shared memory.
struct VerifyMemory {
  VerifyState state;
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
  KeyRange range;  // about that of the scores that are marked
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

// What becomes of a row after a read that left too many or too few.
enum class AfterRead : uint8_t { kReadAgain, kDone, kHasNan, kUndecided };

struct NextRead {
  AfterRead after;
  float threshold;  // of the next read
  TeamCount count;  // when it is done, by ties
};

// Marks the ties behind the larger scores that are marked, as many as are missing: the first ones,
// so that some of the row from its start on is enough, how much the sample says. Whether there are
// that many.
template <DType kDType>
__device__ bool MarkTies(const Team& team, ScanMemory& scan_memory, VerifyMemory& memory,
                         const TiledRow<kDType>& row, const Guess& guess, int wanted, int reads,
                         int words, uint32_t* larger, TeamCount& count) {
  uint32_t* const reaching = larger + words;
  const WordRange range(team, row.words());
  const int missing = wanted - count.total;
  const float scores = __fdividef(static_cast<float>(missing), guess.tie_share);
  int tiles = static_cast<int>(fminf(1.25f * scores, 1e9f)) / kTileScores + 2;
#pragma unroll 1
  for (int turn = reads + 1;; ++turn) {
    const int words_here = row.WordsOfFirst(tiles);
    row.MarkReaching(team, guess.tie, reaching, words_here);
    team.SyncBlock();
    const int end = min(range.end, words_here);
    uint32_t mine = 0;
    for (int w = range.first; w < end; ++w) {
      mine += static_cast<uint32_t>(__popc(reaching[w] & ~larger[w]));
    }
    BlockScan scan(team.Block(), scan_memory);
    const BlockScan::Sums sums = scan.Add(mine);
    TeamCount ties{static_cast<int>(sums.before), 0, static_cast<int>(sums.all),
                   static_cast<int>(sums.all)};
    AddBlocksAgain(team, memory, turn, ties);
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

// The threshold between those that are known to leave too many and too few where the count would be
// the goal if it fell in a straight line.
__device__ inline float Secant(const VerifyState& state, float goal) {
  const float high_count = static_cast<float>(state.high_count);
  const float share =
      __fdividef(static_cast<float>(state.low_count) - goal,
                 fmaxf(static_cast<float>(state.low_count) - high_count, 1.0f));
  return state.low + (state.high - state.low) * share;
}

// After a read that left too many scores or too few. Not inline: what it needs is in the way of no
// row that takes one read.
template <DType kDType>
__device__ __noinline__ NextRead GoOn(Team team, ScanMemory& scan_memory, VerifyMemory& memory,
                                      BinMemory& bins, TiledRow<kDType> row, RowWish wish,
                                      TeamCount count, int reads, uint32_t* plane, int words) {
  constexpr int kMostSecants = 3;  // then as others, which end
  const Team block = team.Block();
  VerifyState state = memory.state;
  block.SyncBlock();
  const float goal = sqrtf(static_cast<float>(wish.wanted) * static_cast<float>(wish.capacity));
  Guess& guess = state.guess;
  NextRead next{AfterRead::kUndecided, 0.0f, count};
  if (guess.IsAboveTie() && count.total < wish.wanted) {
    if (MarkTies(team, scan_memory, memory, row, guess, wish.wanted, reads, words, plane,
                 next.count)) {
      next.after = AfterRead::kDone;
      return next;
    }
    guess.threshold = guess.tie;
    count.total = next.count.total;
  }
  if (reads == kMostReads) return next;
  const bool are_few = count.total < wish.wanted;
  if (are_few) {
    state.high = guess.threshold;
    state.high_count = count.total;
    state.has_high = true;
  } else {
    state.low = guess.threshold;
    state.low_count = count.total;
    state.has_low = true;
  }
  auto is_between = [&](float threshold) {
    return (!state.has_low || threshold > state.low) && (!state.has_high || threshold < state.high);
  };
  const float secant = Secant(state, goal);
  if (!are_few && guess.IsTie()) {
    guess.GoAboveTie();
  } else if (state.is_secant && reads <= kMostSecants && is_between(secant) &&
             fabsf(secant) < INFINITY) {
    guess = {secant, false};
  } else {
    const RowSample<kDType> sample(block, row);
    const auto sampled = static_cast<float>(sample.scores());
    if (state.rank == 0) {
      state.rank = RankInSample(sample.scores(), row.Scores(), wish.wanted, wish.capacity);
    } else {
      const float share = goal / fmaxf(static_cast<float>(count.total), 1.0f);
      state.rank = static_cast<uint32_t>(
          fmaxf(static_cast<float>(state.rank) * fminf(share, 64.0f) + 0.5f, 1.0f));
    }
    const float room = static_cast<float>(wish.capacity) *
                       __fdividef(sampled, static_cast<float>(row.Scores()));
    guess = GuessFromSample(block, scan_memory, bins, sample, state.rank, room);
  }
  if (guess.has_nan) {
    next.after = AfterRead::kHasNan;
  } else if (is_between(guess.threshold)) {
    next.after = AfterRead::kReadAgain;
  }
  next.threshold = guess.threshold;
  block.SyncBlock();
  if (block.thread() == 0) memory.state = state;
  return next;
}

// For rows of more scores than there is room for. plane: room for the marks of this block, twice;
// what is marked in the end is in the first.
template <DType kDType>
__device__ Verified Verify(const Team& team, ScanMemory& scan_memory, VerifyMemory& memory,
                           BinMemory& bins, const TiledRow<kDType>& row, const RowWish& wish,
                           const RowHint& hint, uint32_t* plane, int words) {
  Verified verified{};
  verified.way = TopkWay::kCandidates;
  if (wish.wanted > wish.capacity) return verified;
  const Team block = team.Block();
  Guess guess{NAN, false};
  float least = -INFINITY;
  uint32_t rank = 0;
  if (hint.indices != nullptr) {
    const HintedGuess hinted = GuessFromHint(block, scan_memory, row, hint);
    guess = hinted.guess;
    least = hinted.least;
  }
  if (semantics::IsNan(guess.threshold) && !guess.has_nan) {
    const RowSample<kDType> sample(block, row);
    rank = RankInSample(sample.scores(), row.Scores(), wish.wanted, wish.capacity);
    const float room =
        static_cast<float>(wish.capacity) *
        __fdividef(static_cast<float>(sample.scores()), static_cast<float>(row.Scores()));
    guess = GuessFromSample(block, scan_memory, bins, sample, rank, room);
  }
  verified.has_nan = guess.has_nan;
  if (verified.has_nan) return verified;
  if (block.thread() == 0) {
    VerifyState& state = memory.state;
    state.guess = guess;
    state.rank = rank;
    state.low = least;
    state.high = semantics::ValueOfKey(guess.range.highest);
    state.low_count = row.Scores();
    state.high_count = 0;
    state.has_low = state.has_high = false;
    state.is_secant = hint.is_secant && rank == 0;
  }
  float threshold = guess.threshold;
#pragma unroll 1
  for (verified.reads = 1;; ++verified.reads) {
    row.MarkReaching(team, threshold, plane);
    block.SyncBlock();
    BlockScan scan(block, scan_memory);
    verified.count = CountOverBlock(scan, plane, WordRange(team, row.words()));
    if (verified.reads == 1) {
      AddBlocksOnce(team, memory, verified.count);
    } else {
      AddBlocksAgain(team, memory, verified.reads, verified.count);
    }
    verified.is_done = verified.count.IsEnough(wish);
    if (verified.is_done) break;
    const NextRead next = GoOn(team, scan_memory, memory, bins, row, wish, verified.count,
                               verified.reads, plane, words);
    verified.has_nan = next.after == AfterRead::kHasNan;
    verified.is_done = next.after == AfterRead::kDone;
    threshold = next.threshold;
    if (verified.is_done) {
      verified.way = TopkWay::kPlateau;
      verified.count = next.count;
    }
    if (next.after != AfterRead::kReadAgain) break;
    guess.range = {};
  }
  verified.range = guess.range;
  block.SyncBlock();
  return verified;
}

}  // namespace sluice::cuda
