// The dot products of semantics/dot.h for several weight rows and hidden rows at once.
//
// The definition's 128 lanes are independent until the tree, so a strip of them can be carried
// through the whole row in registers, for a tile of weight rows times hidden rows: each vector that
// is loaded serves a row or a column of the tile.
#include <algorithm>

#include "head/dense_table.h"
#include "semantics/dot.h"
#include "support/rows.h"

#if defined(SLUICE_HEAD_CPU_DENSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_HEAD_CPU_DENSE_INL_H_
#undef SLUICE_HEAD_CPU_DENSE_INL_H_
#else
#define SLUICE_HEAD_CPU_DENSE_INL_H_
#endif

#include "hwy/cache_control.h"
#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

constexpr size_t kDotLanes = semantics::kDotLanes;

// `count` elements, a vector at most; zeros after them.
template <class Read>
HWY_NOINLINE VecF32 PartOfVector(const void* row, size_t i, size_t count) {
  if (count == hn::Lanes(F32())) return Read::At(row, i);
  HWY_ALIGN float part[HWY_MAX_BYTES / sizeof(float)] = {};
  for (size_t lane = 0; lane < count; ++lane) part[lane] = Read::One(row, i + lane);
  return hn::Load(F32(), part);
}

// The halving tree, 64 ... 1.
inline float SumOfDotLanes(const float* lane) {
  const F32 d;
  HWY_ALIGN float half_sum[kDotLanes / 2];
  for (size_t j = 0; j < kDotLanes / 2; j += hn::Lanes(d)) {
    hn::Store(hn::Add(hn::Load(d, lane + j), hn::Load(d, lane + kDotLanes / 2 + j)), d,
              half_sum + j);
  }
  for (size_t half = kDotLanes / 4; half >= hn::Lanes(d); half /= 2) {
    for (size_t j = 0; j < half; j += hn::Lanes(d)) {
      hn::Store(hn::Add(hn::Load(d, half_sum + j), hn::Load(d, half_sum + half + j)), d,
                half_sum + j);
    }
  }
  const hn::Half<F32> dh;
  const hn::FixedTag<float, 4> d4;
  const auto sum = hn::Load(d, half_sum);
  const auto sum_h = hn::Add(hn::LowerHalf(dh, sum), hn::UpperHalf(dh, sum));
#if HWY_TARGET == HWY_AVX2
  const auto sum4 = sum_h;
#else
  const auto sum4 = hn::Add(hn::LowerHalf(d4, sum_h), hn::UpperHalf(d4, sum_h));
#endif
  const auto sum2 = hn::Add(sum4, hn::Shuffle1032(sum4));
  return hn::GetLane(hn::Add(sum2, hn::Shuffle2301(sum2)));
}

constexpr size_t kPrefetchBytes = 4096;

// The dot product of one weight row with one hidden row, which streams the weights: eight chains
// hide the latency of fma. Lanes past the end of the rows are not touched.
template <class ReadW, class ReadS>
float StreamDot(const void* weight, const void* state, size_t dim) {
  constexpr size_t kVectors = 8;
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float lane_sums[kDotLanes];
  for (size_t strip = 0; strip < kDotLanes; strip += kVectors * lanes) {
    VecF32 sum[kVectors];
    for (auto& vector : sum) vector = hn::Zero(d);
    size_t i = strip;
    for (; i + kVectors * lanes <= dim; i += kDotLanes) {
      const auto* const at = static_cast<const typename ReadW::Element*>(weight) + i;
      for (size_t ahead = 0; ahead < kVectors * lanes; ahead += 64 / sizeof(*at)) {
        hwy::Prefetch(reinterpret_cast<const char*>(at + ahead) + kPrefetchBytes);
      }
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto one = ReadS::At(state, i + v * lanes);
        sum[v] = hn::MulAdd(ReadW::At(weight, i + v * lanes), one, sum[v]);
      }
    }
    for (size_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, lane_sums + strip + v * lanes);
    for (size_t v = 0; v < kVectors && i + v * lanes < dim; ++v) {  // a part of this strip
      const size_t first = i + v * lanes;
      const size_t count = std::min(lanes, dim - first);
      float* const to = lane_sums + strip + v * lanes;
      const auto old = hn::Load(d, to);
      const auto fma = hn::MulAdd(PartOfVector<ReadW>(weight, first, count),
                                  PartOfVector<ReadS>(state, first, count), old);
      hn::Store(hn::IfThenElse(hn::FirstN(d, count), fma, old), d, to);
    }
  }
  return SumOfDotLanes(lane_sums);
}

// The rest of the tree within a vector, of four of them.
using FourF32 = hn::FixedTag<float, 4>;

HWY_INLINE hn::Vec<FourF32> FoldToFour(VecF32 sum) {
  const hn::Half<F32> half;
  const auto folded = hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
#if HWY_TARGET == HWY_AVX2
  return folded;
#else
  const FourF32 four;
  return hn::Add(hn::LowerHalf(four, folded), hn::UpperHalf(four, folded));
#endif
}

HWY_INLINE hn::Vec<FourF32> SumsOfFour(const VecF32* sums) {
  const FourF32 d;
  const auto a = FoldToFour(sums[0]), b = FoldToFour(sums[1]);
  const auto c = FoldToFour(sums[2]), e = FoldToFour(sums[3]);
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  return hn::Add(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab));
}

// Strips are one vector of lanes each. Two that the tree joins first, v and v + kStrips / 2, are
// summed together, and the pairs come in the order in which it joins them, 0, 2, 1, 3 of four:
// sums that wait for their other half are few.
constexpr size_t kStrips = kDotLanes * sizeof(float) / HWY_MAX_BYTES;
constexpr size_t kPairs = kStrips / 2;

constexpr size_t PairAt(size_t turn) {
  size_t pair = 0;
  for (size_t bit = 1; bit < kPairs; bit *= 2) pair = pair * 2 + ((turn & bit) != 0 ? 1 : 0);
  return pair;
}

template <class ReadW, class ReadS, size_t kWeights, size_t kStates>
struct DotStrip {
  const void* const* weights;
  const void* const* states;

  // Elements i, i + 1, ... of a strip.
  HWY_INLINE void Add(size_t i, VecF32* sum) const {
    VecF32 state[kStates];
    HWY_UNROLL(8)
    for (size_t s = 0; s < kStates; ++s) state[s] = ReadS::At(states[s], i);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kWeights; ++w) {
      const auto weight = ReadW::At(weights[w], i);
      HWY_UNROLL(8)
      for (size_t s = 0; s < kStates; ++s) {
        sum[w * kStates + s] = hn::MulAdd(weight, state[s], sum[w * kStates + s]);
      }
    }
  }
  // The last elements, which fill a strip in part.
  HWY_INLINE void AddSome(size_t i, size_t count, VecF32* sum) const {
    VecF32 weight[kWeights], state[kStates];
    for (size_t w = 0; w < kWeights; ++w) weight[w] = PartOfVector<ReadW>(weights[w], i, count);
    for (size_t s = 0; s < kStates; ++s) state[s] = PartOfVector<ReadS>(states[s], i, count);
    const auto some = hn::FirstN(F32(), count);
    HWY_UNROLL(16)
    for (size_t n = 0; n < kWeights * kStates; ++n) {
      const auto fma = hn::MulAdd(weight[n / kStates], state[n % kStates], sum[n]);
      sum[n] = hn::IfThenElse(some, fma, sum[n]);
    }
  }
};

// The dot products of kWeights weight rows with kStates hidden rows; dots[w * kStates + s], and
// what fills up fours.
template <class ReadW, class ReadS, size_t kWeights, size_t kStates>
void DotTile(const void* const* weights, const void* const* states, size_t dim, float* dots) {
  constexpr size_t kDots = kWeights * kStates;
  constexpr size_t kLevels = kPairs == 4 ? 3 : 4;  // of the tree over pairs
  constexpr size_t kHalf = kDotLanes / 2;
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const DotStrip<ReadW, ReadS, kWeights, kStates> strip{weights, states};
  VecF32 waiting[kLevels][(kDots + 3) / 4 * 4];
  for (size_t n = kDots; n < (kDots + 3) / 4 * 4; ++n) waiting[kLevels - 1][n] = hn::Zero(d);
  for (size_t turn = 0; turn < kPairs; ++turn) {
    VecF32 low[kDots], high[kDots];
    HWY_UNROLL(16)
    for (size_t n = 0; n < kDots; ++n) low[n] = high[n] = hn::Zero(d);
    size_t i = PairAt(turn) * lanes;
    for (; i + kHalf + lanes <= dim; i += kDotLanes) {
      strip.Add(i, low);
      strip.Add(i + kHalf, high);
    }
    if (i + lanes <= dim) {
      strip.Add(i, low);
      if (i + kHalf < dim) strip.AddSome(i + kHalf, dim - i - kHalf, high);
    } else if (i < dim) {
      strip.AddSome(i, dim - i, low);
    }
    HWY_UNROLL(16)
    for (size_t n = 0; n < kDots; ++n) low[n] = hn::Add(low[n], high[n]);
    size_t level = 0;
    for (; (turn >> level & 1) != 0; ++level) {
      HWY_UNROLL(16)
      for (size_t n = 0; n < kDots; ++n) low[n] = hn::Add(waiting[level][n], low[n]);
    }
    HWY_UNROLL(16)
    for (size_t n = 0; n < kDots; ++n) waiting[level][n] = low[n];
  }
  for (size_t n = 0; n < kDots; n += 4) {
    hn::StoreU(SumsOfFour(&waiting[kLevels - 1][n]), FourF32(), dots + n);
  }
}

// Two sums for each dot product: 24 of 32 registers, or 12 of 16.
constexpr size_t kTileWeights = 2;
#if HWY_TARGET == HWY_AVX2
constexpr size_t kTileStates = 3;
#else
constexpr size_t kTileStates = 6;
#endif

// A task's weight rows and a block of hidden rows lie in the second-level cache together, so the
// weights come from memory once for the whole batch.
constexpr int64_t kTaskWeights = 32;
constexpr int64_t kBlockStates = 24;

struct DenseWork {
  const DenseHead& head;
  const MatrixView& hidden;
  std::span<const int32_t> query_start_loc;
  const MutableLogitsView& logits;

  const void* State(int64_t r) const { return hidden.Row(ProjectedPosition(query_start_loc, r)); }
  void Store(int64_t r, int64_t v, float dot) const {
    static_cast<float*>(logits.Row(r))[v] =
        head.bias.empty() ? dot : dot + head.bias[static_cast<size_t>(v)];
  }
};

// So few share too little of a tile to make up for what it costs.
constexpr int64_t kStreamedStates = 2;

template <class ReadW, class ReadS>
void StreamStates(const DenseWork& work, int64_t begin, int64_t end) {
  const size_t dim = static_cast<size_t>(work.hidden.columns);
  for (int64_t v = begin; v < end; ++v) {
    for (int64_t r = 0; r < work.logits.rows; ++r) {
      const void* const weight = work.head.weight.Row(v);
      work.Store(r, v, StreamDot<ReadW, ReadS>(weight, work.State(r), dim));
    }
  }
}

// A tile at the edge repeats its last row and forgets the result.
template <class ReadW, class ReadS, size_t kStates>
void ProjectTile(const DenseWork& work, int64_t r, int64_t rows, int64_t v, int64_t weights) {
  const void* weight[kTileWeights];
  const void* state[kStates];
  float dots[(kTileWeights * kStates + 3) / 4 * 4];
  for (size_t w = 0; w < kTileWeights; ++w) {
    weight[w] = work.head.weight.Row(v + std::min(static_cast<int64_t>(w), weights - 1));
  }
  for (size_t s = 0; s < kStates; ++s) {
    state[s] = work.State(r + std::min(static_cast<int64_t>(s), rows - 1));
  }
  DotTile<ReadW, ReadS, kTileWeights, kStates>(weight, state,
                                               static_cast<size_t>(work.hidden.columns), dots);
  for (int64_t w = 0; w < weights; ++w) {
    for (int64_t s = 0; s < rows; ++s) {
      work.Store(r + s, v + w, dots[static_cast<size_t>(w) * kStates + static_cast<size_t>(s)]);
    }
  }
}

template <class ReadW, class ReadS>
void ProjectWeights(const DenseWork& work, int64_t begin, int64_t end) {
  constexpr int64_t kWeights = kTileWeights, kStates = kTileStates;
  const int64_t rows = work.logits.rows;
  if (rows <= kStreamedStates) return StreamStates<ReadW, ReadS>(work, begin, end);
  const size_t tile_bytes =
      kTileWeights * static_cast<size_t>(work.hidden.columns) * sizeof(typename ReadW::Element);
  for (int64_t block = 0; block < rows; block += kBlockStates) {
    const int64_t block_end = std::min(block + kBlockStates, rows);
    for (int64_t v = begin; v < end; v += kWeights) {
      const int64_t weights = std::min(kWeights, end - v);
      if (block == 0) {
        const char* const next = static_cast<const char*>(work.head.weight.Row(v)) + kPrefetchBytes;
        for (size_t byte = 0; byte < tile_bytes; byte += 64) hwy::Prefetch(next + byte);
      }
      for (int64_t r = block; r < block_end; r += kStates) {
        const int64_t some = std::min(kStates, block_end - r);
        if (some <= kStates / 3) {
          ProjectTile<ReadW, ReadS, kTileStates / 3>(work, r, some, v, weights);
        } else if (some <= 2 * kStates / 3) {
          ProjectTile<ReadW, ReadS, 2 * kTileStates / 3>(work, r, some, v, weights);
        } else {
          ProjectTile<ReadW, ReadS, kTileStates>(work, r, some, v, weights);
        }
      }
    }
  }
}

template <class ReadW, class ReadS>
void ProjectTokens(const DenseHead& head, const void* state, std::span<const int32_t> tokens,
                   float* logits) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    logits[i] = StreamDot<ReadW, ReadS>(head.weight.Row(tokens[i]), state,
                                        static_cast<size_t>(head.weight.columns));
    if (!head.bias.empty()) logits[i] += head.bias[static_cast<size_t>(tokens[i])];
  }
}

template <class ReadW>
void ProjectTokensOf(const DenseHead& head, const semantics::Row& hidden,
                     std::span<const int32_t> tokens, float* logits) {
  switch (hidden.dtype) {
    case DType::kF32:
      return ProjectTokens<ReadW, ReadF32>(head, hidden.data, tokens, logits);
    case DType::kBf16:
      return ProjectTokens<ReadW, ReadBf16>(head, hidden.data, tokens, logits);
    case DType::kF16:
      return ProjectTokens<ReadW, ReadF16>(head, hidden.data, tokens, logits);
  }
}

inline void ProjectSome(const DenseHead& head, const semantics::Row& hidden,
                        std::span<const int32_t> tokens, float* logits) {
  switch (head.weight.dtype) {
    case DType::kF32:
      return ProjectTokensOf<ReadF32>(head, hidden, tokens, logits);
    case DType::kBf16:
      return ProjectTokensOf<ReadBf16>(head, hidden, tokens, logits);
    case DType::kF16:
      return ProjectTokensOf<ReadF16>(head, hidden, tokens, logits);
  }
}

template <class ReadW>
void ProjectWeightsOf(const DenseWork& work, int64_t begin, int64_t end) {
  switch (work.hidden.dtype) {
    case DType::kF32:
      return ProjectWeights<ReadW, ReadF32>(work, begin, end);
    case DType::kBf16:
      return ProjectWeights<ReadW, ReadBf16>(work, begin, end);
    case DType::kF16:
      return ProjectWeights<ReadW, ReadF16>(work, begin, end);
  }
}

// A task is a group of weight rows with all hidden rows.
inline void ProjectDense(const DenseHead& head, const MatrixView& hidden,
                         std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
                         const Execution& execution) {
  if (logits.rows == 0) return;
  const DenseWork work{head, hidden, query_start_loc, logits};
  const int64_t vocab = head.weight.rows;
  const int64_t tasks = (vocab + kTaskWeights - 1) / kTaskWeights;
  ForEachRow(execution.parallel, tasks, [&](int64_t task, int) HWY_ATTR {
    const int64_t begin = task * kTaskWeights;
    const int64_t end = std::min(begin + kTaskWeights, vocab);
    switch (head.weight.dtype) {
      case DType::kF32:
        return ProjectWeightsOf<ReadF32>(work, begin, end);
      case DType::kBf16:
        return ProjectWeightsOf<ReadBf16>(work, begin, end);
      case DType::kF16:
        return ProjectWeightsOf<ReadF16>(work, begin, end);
    }
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
