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
  BinMemory bins;
  uint32_t counts[2][kMostBlocks];  // of the blocks, in reads by turns
};

struct RowWish {
  int wanted;
  int capacity;
  bool uses_hint;
  RowHint hint;
};

struct Verified {
  bool is_done;  // else the definition is to decide
  bool has_nan;
  const uint32_t* words;  // what is marked
  int before;             // marked by the blocks before this one
  int mine;               // by this one
  int total;
  TopkWay way;
  int reads;
};

// The counts of all blocks.
struct TeamCount {
  int before;
  int mine;
  int total;
};

__device__ inline TeamCount CountOverTeam(const Team& team, VerifyMemory& memory, int read,
                                          int of_thread) {
  const int mine = static_cast<int>(team.SumOfBlock(static_cast<uint64_t>(of_thread)));
  if (team.blocks() == 1) return {0, mine, mine};
  uint32_t* counts = memory.counts[read % 2];
  if (team.thread() < team.blocks()) {
    *team.Of(team.thread(), &counts[team.rank()]) = static_cast<uint32_t>(mine);
  }
  team.Sync();
  TeamCount count{0, mine, 0};
  for (int r = 0; r < team.blocks(); ++r) {
    const int of_block = static_cast<int>(counts[r]);
    count.before += r < team.rank() ? of_block : 0;
    count.total += of_block;
  }
  return count;
}

// The first `most` bits.
__device__ inline uint32_t FirstBits(uint32_t bits, int most) {
  const int extra = __popc(bits) - most;
  for (int i = 0; i < extra; ++i) bits &= ~(0x80000000u >> __clz(static_cast<int>(bits)));
  return bits;
}

// This thread's words of a block: neighbours, in the order of threads.
struct WordRange {
  __device__ WordRange(const Team& team, int words) {
    const int share = (words + team.threads() - 1) / team.threads();
    first = min(team.thread() * share, words);
    end = min(first + share, words);
  }
  int first;
  int end;
};

// Leaves the marks of larger scores and those of the first `ties` equal ones of the block.
__device__ inline void KeepFirstTies(const Team& team, const uint32_t* reaching, uint32_t* larger,
                                     int words, int ties) {
  const WordRange range(team, words);
  uint64_t mine = 0;
  for (int w = range.first; w < range.end; ++w) {
    mine += static_cast<uint64_t>(__popc(reaching[w] & ~larger[w]));
  }
  int left = ties - static_cast<int>(team.SumBefore(mine));
  for (int w = range.first; w < range.end && left > 0; ++w) {
    const uint32_t equal = reaching[w] & ~larger[w];
    larger[w] |= FirstBits(equal, left);
    left -= __popc(equal);
  }
}

// planes: room for the marks of this block, twice. Behind it: a SyncBlock.
template <DType kDType>
__device__ Verified Verify(const Team& team, VerifyMemory& memory, const TiledRow<kDType>& row,
                           const RowWish& wish, uint32_t* plane, uint32_t* other_plane) {
  Verified verified{};
  verified.way = TopkWay::kCandidates;
  if (wish.wanted > wish.capacity) return verified;
  const Team block = team.Block();
  const float goal = sqrtf(static_cast<float>(wish.wanted) * static_cast<float>(wish.capacity));
  uint32_t rank = 0;      // in the sample
  float low = -INFINITY;  // too many scores reach it: other_plane, if has_low
  float high = INFINITY;  // too few reach it
  bool has_low = false, has_high = false, is_next = false;
  bool uses_hint = wish.uses_hint;
  TeamCount of_low{};
#pragma unroll 1
  for (int read = 0; read < kMostReads; ++read) {
    Guess guess{-INFINITY, false, false};
    if (is_next) {
      guess.threshold = semantics::ValueOfKey(semantics::OrderKey(low) + 1);
    } else if (row.Scores() > wish.capacity) {
      if (uses_hint) {
        guess = GuessFromHint(block, row, wish.hint);
        uses_hint = guess.threshold == guess.threshold;
      }
      if (!uses_hint) {
        const RowSample<kDType> sample(block, row);
        if (rank == 0) {
          rank = RankInSample(sample.scores(), row.Scores(), wish.wanted, wish.capacity);
        }
        guess = GuessFromSample(block, memory.bins, sample, rank);
      }
      if (guess.has_nan) {
        verified.has_nan = true;
        return verified;
      }
    }
    if ((has_low && guess.threshold <= low) || (has_high && guess.threshold >= high)) break;
    const TeamCount count =
        CountOverTeam(team, memory, read, row.MarkReaching(guess.threshold, plane));
    verified.reads = read + 1;
    const bool was_hint = uses_hint;
    uses_hint = false;
    if (count.total >= wish.wanted && count.total <= wish.capacity) {
      verified.is_done = true;
      verified.words = plane;
      verified.before = count.before;
      verified.mine = count.mine;
      verified.total = count.total;
      return verified;
    }
    if (count.total < wish.wanted && is_next) {
      const int ties = wish.wanted - count.total;
      const int ties_before = of_low.before - count.before;
      const int ties_here = min(max(ties - ties_before, 0), of_low.mine - count.mine);
      KeepFirstTies(block, other_plane, plane, row.words(), ties_here);
      verified.is_done = true;
      verified.way = TopkWay::kPlateau;
      verified.words = plane;
      verified.before = count.before + min(ties_before, ties);
      verified.mine = count.mine + ties_here;
      verified.total = wish.wanted;
      return verified;
    }
    if (count.total < wish.wanted) {
      high = guess.threshold;
      has_high = true;
    } else {
      low = guess.threshold;
      has_low = true;
      of_low = count;
      uint32_t* const marked = plane;
      plane = other_plane;
      other_plane = marked;
    }
    // Many equal scores: is it they that are too many?
    is_next = guess.is_tie && has_low && low == guess.threshold && low < INFINITY;
    if (!is_next && !was_hint) {
      const float share = goal / fmaxf(static_cast<float>(count.total), 1.0f);
      rank =
          static_cast<uint32_t>(fmaxf(static_cast<float>(rank) * fminf(share, 64.0f) + 0.5f, 1.0f));
    }
  }
  return verified;
}

}  // namespace sluice::cuda
