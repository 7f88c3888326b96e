// The first threshold of a row: the score of some rank in a sample of it, or the mean of the scores
// at hinted indices. Only a guess: what it leaves is counted.
#pragma once

#include "select/topk_bins.cuh"
#include "select/topk_tiles.cuh"
#include "semantics/order.h"

namespace sluice::cuda {

inline constexpr int kSampleVectors = 2;  // a thread
inline constexpr int kPieceVectors = 8;   // neighbours, a line of 128 bytes

struct Guess {
  float threshold;
  bool is_tie;   // of the sample's scores, many equal it
  bool has_nan;  // the sample has
};

// A sample of a row, by every block of its team for itself: pieces spread evenly over all of it.
template <DType kDType>
class RowSample {
 public:
  __device__ RowSample(const Team& block, const TiledRow<kDType>& row) {
    const int vectors = row.FullVectors();
    const int wanted = kSampleVectors * block.threads();
    const int pieces = wanted / kPieceVectors;
    scores_ = min(vectors, wanted) * kElements;
#pragma unroll
    for (int i = 0; i < kSampleVectors; ++i) {
      int vector = i * block.threads() + block.thread();
      if (vectors > wanted) {
        const int64_t piece = vector / kPieceVectors;
        vector = static_cast<int>(piece * (vectors / kPieceVectors) / pieces) * kPieceVectors +
                 vector % kPieceVectors;
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

// The rank in a sample whose score leaves more than k of a row, three deviations of the sample's
// count surely; but where that is more than there is room for, the middle of what is allowed.
__device__ inline uint32_t RankInSample(int sampled, int scores, int k, int capacity) {
  const float expected =
      static_cast<float>(sampled) / static_cast<float>(scores) * static_cast<float>(k);
  const float left_out = 1.0f - static_cast<float>(sampled) / static_cast<float>(scores);
  const float sure = expected + 3.0f * sqrtf(expected * fmaxf(left_out, 0.0f)) + 2.0f;
  const float middle = expected * sqrtf(static_cast<float>(capacity) / static_cast<float>(k));
  const float edges = left_out < 0.01f ? 16.0f : 0.0f;  // scores beside the full vectors
  return static_cast<uint32_t>(fminf(sure, fmaxf(middle, expected + 1.0f)) + edges);
}

// The score of that rank in the sample, or one that leaves some more.
template <DType kDType>
__device__ Guess GuessFromSample(const Team& block, BinMemory& memory,
                                 const RowSample<kDType>& sample, uint32_t rank) {
  constexpr int kMostRounds = 4;
  KeyRange finite;
  bool has_nan = false;
  sample.ForEach([&](float x) {
    has_nan |= semantics::IsNan(x);
    if (fabsf(x) < INFINITY) finite.Add(semantics::OrderKey(x));
  });
  finite = RangeOfBlock(block, memory, finite);
  has_nan = block.CountOfBlock(has_nan) != 0;
  if (has_nan || finite.lowest > finite.highest) return {-INFINITY, true, has_nan};

  uint32_t above = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    const float low = semantics::ValueOfKey(finite.lowest);
    const float high = semantics::ValueOfKey(finite.highest);
    if (low == high) return {low, true, false};
    // Halves, because the difference of two finite scores may be none.
    const float scale = (kRankBins - 1) / (0.5f * high - 0.5f * low);
    auto bin_of = [&](float x) {
      return min(max(static_cast<int>((0.5f * x - 0.5f * low) * scale), 0), kRankBins - 1);
    };
    auto is_in_range = [&](float x) { return x >= low && (x <= high || round == 0); };
    const RankBin found = FindRankBin(block, memory, rank - above, [&](auto add) {
      sample.ForEach([&](float x) {
        if (is_in_range(x)) add(bin_of(x));
      });
    });
    if (found.bin < 0) return {-INFINITY, true, false};
    above += found.above;
    if (found.in_bin <= max(32u, rank / 8) || round == kMostRounds) {
      // The least score of the bin is not known; its edge lies a little below.
      const float edge = 2.0f * (0.5f * low + static_cast<float>(found.bin) / scale);
      return {fminf(fmaxf(edge, low), high), false, false};
    }
    KeyRange of_bin;
    sample.ForEach([&](float x) {
      if (is_in_range(x) && bin_of(x) == found.bin && x < INFINITY) {
        of_bin.Add(semantics::OrderKey(x));
      }
    });
    finite = RangeOfBlock(block, memory, of_bin);
    if (finite.lowest > finite.highest) return {high, true, false};  // infinities alone
  }
}

// Hinted indices of a row; any numbers at all.
struct RowHint {
  const int32_t* indices;  // null: none
  int32_t count;
  int32_t shift;
};

// The mean of the scores at the hinted indices; not a number when there are none.
template <DType kDType>
__device__ Guess GuessFromHint(const Team& block, const TiledRow<kDType>& row,
                               const RowHint& hint) {
  float sum = 0.0f;
  uint64_t count = 0;
  bool has_nan = false;
  for (int i = block.thread(); i < hint.count; i += block.threads()) {
    const int64_t index = int64_t{hint.indices[i]} + hint.shift;
    if (index < 0 || index >= row.Scores()) continue;
    const float x = row.ScoreAt(static_cast<int>(index));
    has_nan |= semantics::IsNan(x);
    sum += x;
    ++count;
  }
  has_nan = block.CountOfBlock(has_nan) != 0;
  const double mean = block.ReduceBlock(static_cast<double>(sum), Plus{}) /
                      static_cast<double>(block.SumOfBlock(count));
  return {static_cast<float>(mean), false, has_nan};
}

}  // namespace sluice::cuda
