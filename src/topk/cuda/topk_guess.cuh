// Thresholds for a row: the score of some rank in a sample of it, or the mean of the scores at
// hinted indices. Only guesses: what they leave is counted.
#pragma once

#include "semantics/order.h"
#include "topk/cuda/topk_bins.cuh"
#include "topk/cuda/topk_tiles.cuh"

namespace sluice::cuda {

inline constexpr int kSampleVectors = 2;  // a thread
// Neighbours are alike in real scores, so a sample is worth no more than its pieces are many. With
// pieces of 128 bytes instead, most rows of a trace (bench/topk_traces.py) took a second read.
inline constexpr int kSamplePieces = 512;

struct Guess {
  float threshold;
  bool has_nan;         // the sample has
  bool is_tie = false;  // many of the sample equal Tie::score
  KeyRange range = {};  // of the sample's scores from the threshold on, if they are known
};

// In shared memory, because few rows have one: of the sample's scores many equal one, where the
// rank falls. The threshold is that score, or the next larger one where they seem to be more than
// there is room for.
struct Tie {
  float score;
  float share;  // of the sample
};

// The next larger score.
__device__ inline float NextScore(float x) {
  return semantics::ValueOfKey(semantics::OrderKey(x) + 1);
}

// A sample of a row, by every block of its team for itself: pieces spread evenly over all of it.
template <DType kDType>
class RowSample {
 public:
  __device__ RowSample(const Team& block, const TiledRow<kDType>& row) {
    const int vectors = row.FullVectors();
    const int wanted = kSampleVectors * block.threads();
    const int shift = ShiftOf(wanted / kSamplePieces);  // vectors of a piece, two or four
    scores_ = min(vectors, wanted) * kElements;
#pragma unroll
    for (int i = 0; i < kSampleVectors; ++i) {
      int vector = i * block.threads() + block.thread();
      if (vectors > wanted) {
        const int piece = (vector >> shift) * (vectors >> shift) / kSamplePieces;
        vector = (piece << shift) + (vector & ((1 << shift) - 1));
      }
      has_[i] = vector < vectors;
      if (has_[i]) raw_[i] = row.FullVector(vector);
    }
  }

  __device__ int scores() const { return scores_; }

  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kSampleVectors; ++i) {
      if (!has_[i]) continue;
      const Vector<kDType> vector(raw_[i]);
#pragma unroll
      for (int e = 0; e < kElements; ++e) visit(vector.x[e]);
    }
  }

 private:
  static constexpr int kElements = Vector<kDType>::kElements;

  uint4 raw_[kSampleVectors];
  bool has_[kSampleVectors];
  int scores_;
};

// The rank in a sample with a score that leaves more than k of a row, four deviations of the
// sample's count surely; but where that exceeds the room, the middle of what is allowed.
__device__ inline uint32_t RankInSample(int sampled, int scores, int k, int capacity) {
  const float share = __fdividef(static_cast<float>(sampled), static_cast<float>(scores));
  const float expected = share * static_cast<float>(k);
  const float left_out = fmaxf(1.0f - share, 0.0f);
  const float sure = expected + 4.0f * SqrtApprox(expected * left_out) + 2.0f;
  const float middle =
      expected * SqrtApprox(__fdividef(static_cast<float>(capacity), static_cast<float>(k)));
  const float edges = left_out < 0.01f ? 16.0f : 0.0f;  // scores outside the full vectors
  return static_cast<uint32_t>(fminf(sure, fmaxf(middle, expected + 1.0f)) + edges);
}

// For how many of a sample there is room.
__device__ inline float RoomInSample(int sampled, int scores, int capacity) {
  return static_cast<float>(capacity) *
         __fdividef(static_cast<float>(sampled), static_cast<float>(scores));
}

// Whether a bin with this count is narrow enough for a threshold.
__device__ inline bool IsNarrow(const RankBin& found, uint32_t rank) {
  return found.in_bin <= max(32u, rank / 8);
}

// The result of one round over all of the sample, when it was not enough.
struct WideBin {
  bool is_known;  // else the scores are not finite, or all the same
  RankBin found;
  ScoreBins bins;
};

// The score of that rank in the sample by bins in bins, for samples that one round does not do for:
// infinities, ties, long tails. room: for how many of the sample there is. Not inline, like all
// that is seldom needed: its registers and its code are not to be in the way.
template <DType kDType>
__device__ __noinline__ Guess GuessInBins(Team block, ScanMemory& scan_memory, BinMemory& memory,
                                          Tie& tie, RowSample<kDType> sample, uint32_t rank,
                                          float room, WideBin first) {
  constexpr int kMostRounds = 4;
  block.SyncBlock();
  BlockScan scan(block, scan_memory);
  KeyRange range;
  sample.ForEach([&](float x) {
    const bool is_left = first.is_known ? first.bins.Of(x) == first.found.bin : fabsf(x) < INFINITY;
    if (is_left) range.Add(semantics::OrderKey(x));
  });
  range = scan.Range(range);
  Guess guess{-INFINITY, false};
  uint32_t above = first.is_known ? first.found.above : 0;
  uint32_t equal = 0;
  if (first.is_known) equal = first.found.in_bin;
  bool is_tie = true;
#pragma unroll 1
  for (int round = first.is_known ? 1 : 0; range.lowest <= range.highest; ++round) {
    const float low = semantics::ValueOfKey(range.lowest);
    const float high = semantics::ValueOfKey(range.highest);
    guess.threshold = low;
    if (low == high) {
      if (round == 0) equal = static_cast<uint32_t>(sample.scores());
      break;
    }
    const ScoreBins bins(low, high);
    auto is_in_range = [&](float x) { return x >= low && (x <= high || round == 0); };
    const RankBin found = FindRankBin(block, scan, memory, rank - above, [&](auto add) {
      sample.ForEach([&](float x) {
        if (is_in_range(x)) add(bins.Of(x));
      });
    });
    if (found.bin < 0) {  // it is one of the -inf
      guess.threshold = -INFINITY;
      equal = static_cast<uint32_t>(sample.scores()) - above;
      break;
    }
    above += found.above;
    equal = found.in_bin;
    if (IsNarrow(found, rank) || round == kMostRounds) {
      guess.threshold = fminf(fmaxf(bins.EdgeOf(found.bin), low), high);
      is_tie = false;
      break;
    }
    KeyRange of_bin;
    sample.ForEach([&](float x) {
      if (is_in_range(x) && bins.Of(x) == found.bin && x < INFINITY) {
        of_bin.Add(semantics::OrderKey(x));
      }
    });
    range = scan.Range(of_bin);
    guess.threshold = high;  // for infinities alone
  }
  if (is_tie && guess.threshold < INFINITY) {
    guess.is_tie = true;
    if (block.thread() == 0) {
      tie = {guess.threshold,
             __fdividef(static_cast<float>(max(equal, 1u)), static_cast<float>(sample.scores()))};
    }
    if (static_cast<float>(above + equal) > room) guess.threshold = NextScore(guess.threshold);
  }
  block.SyncBlock();
  return guess;
}

// The score of that rank in the sample, or one that leaves some more. room: as above. memory: bins
// that are zero after the next SyncBlock. when_here(): called when the sample has come, for loads
// to start while its threshold is found, and not before it.
template <DType kDType, typename WhenHere>
__device__ Guess GuessFromSample(const Team& block, ScanMemory& scan_memory, BinMemory& memory,
                                 Tie& tie, const RowSample<kDType>& sample, uint32_t rank,
                                 float room, WhenHere when_here) {
  float least = INFINITY, largest = -INFINITY;
  sample.ForEach([&](float x) {
    least = fminf(least, x);
    largest = LargerOrNan(largest, x);
  });
  BlockScan scan(block, scan_memory);
  const KeyRange range = scan.Range(
      {semantics::OrderKey(least), semantics::IsNan(largest) ? ~0u : semantics::OrderKey(largest)});
  when_here();
  if (range.HasNan()) return {-INFINITY, true};
  WideBin first{false, {}, {0.0f, 1.0f}};
  if (range.IsFinite() && range.lowest < range.highest) {
    const ScoreBins bins(semantics::ValueOfKey(range.lowest), semantics::ValueOfKey(range.highest));
    const RankBin found = FindInZeroBins(block, scan, memory, rank, [&](auto add) {
      sample.ForEach([&](float x) { add(bins.Of(x)); });
    });
    if (found.bin >= 0 && IsNarrow(found, rank)) {
      const float edge = bins.EdgeOf(found.bin);
      return {edge, false, false, {semantics::OrderKey(edge), range.highest}};
    }
    first = {found.bin >= 0, found, bins};
  }
  Guess guess = GuessInBins(block, scan_memory, memory, tie, sample, rank, room, first);
  if (!guess.is_tie) guess.range = {semantics::OrderKey(guess.threshold), range.highest};
  return guess;
}

// The input of a row's guess; any numbers at all.
struct RowHint {
  const int32_t* indices;  // null: none
  int32_t count;
  int32_t shift;
  bool is_secant;   // further thresholds from the counts of those before
  float threshold;  // the first one; NaN: none
};

// The mean of the scores at the hinted indices, not a number when there are none; the least of
// them.
template <DType kDType>
__device__ __noinline__ Guess GuessFromHint(Team block, ScanMemory& scan_memory,
                                            TiledRow<kDType> row, RowHint hint, float& least) {
  float sum = 0.0f;
  uint64_t count = 0;
  KeyRange range;
  bool has_nan = false;
  for (int i = block.thread(); i < hint.count; i += block.threads()) {
    const int64_t index = int64_t{hint.indices[i]} + hint.shift;
    if (index < 0 || index >= row.Scores()) continue;
    const float x = row.ScoreAt(static_cast<int>(index));
    has_nan |= semantics::IsNan(x);
    range.Add(semantics::OrderKey(x));
    sum += x;
    ++count;
  }
  has_nan = block.CountOfBlock(has_nan) != 0;
  BlockScan scan(block, scan_memory);
  range = scan.Range(range);
  if (block.thread() == 0) least = semantics::ValueOfKey(range.lowest);
  const double mean = block.ReduceBlock(static_cast<double>(sum), Plus{}) /
                      static_cast<double>(block.SumOfBlock(count));
  Guess guess{static_cast<float>(mean), has_nan};
  if (fabsf(guess.threshold) < INFINITY) {
    guess.range = {semantics::OrderKey(guess.threshold), range.highest};
  }
  return guess;
}

}  // namespace sluice::cuda
