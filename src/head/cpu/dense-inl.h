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
VecF32 PartOfVector(const void* row, size_t i, size_t count) {
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

// One hidden row streams the weights.
constexpr size_t kPrefetchBytes = 4096;

// The dot products of kWeights weight rows with kStates hidden rows, kVectors vectors of lanes at a
// time; dots[w * kStates + s]. Lanes past the end of the rows are not touched.
template <class ReadW, class ReadS, size_t kWeights, size_t kStates, size_t kVectors>
void DotTile(const void* const* weights, const void* const* states, size_t dim, float* dots) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float lane_sums[kWeights * kStates][kDotLanes];
  for (size_t strip = 0; strip < kDotLanes; strip += kVectors * lanes) {
    VecF32 sum[kWeights][kStates][kVectors];
    for (auto& row : sum) {
      for (auto& column : row) {
        for (auto& vector : column) vector = hn::Zero(d);
      }
    }
    size_t i = strip;
    for (; i + kVectors * lanes <= dim; i += kDotLanes) {
      if constexpr (kStates == 1) {
        const auto* const at = static_cast<const typename ReadW::Element*>(weights[0]) + i;
        for (size_t ahead = 0; ahead < kVectors * lanes; ahead += 64 / sizeof(*at)) {
          hwy::Prefetch(reinterpret_cast<const char*>(at + ahead) + kPrefetchBytes);
        }
      }
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        VecF32 state[kStates];
        HWY_UNROLL(8)
        for (size_t s = 0; s < kStates; ++s) state[s] = ReadS::At(states[s], i + v * lanes);
        HWY_UNROLL(8)
        for (size_t w = 0; w < kWeights; ++w) {
          const auto weight = ReadW::At(weights[w], i + v * lanes);
          HWY_UNROLL(8)
          for (size_t s = 0; s < kStates; ++s) {
            sum[w][s][v] = hn::MulAdd(weight, state[s], sum[w][s][v]);
          }
        }
      }
    }
    for (size_t w = 0; w < kWeights; ++w) {
      for (size_t s = 0; s < kStates; ++s) {
        for (size_t v = 0; v < kVectors; ++v) {
          hn::Store(sum[w][s][v], d, lane_sums[w * kStates + s] + strip + v * lanes);
        }
      }
    }
    if (i < dim) {  // the last elements fill this strip in part
      for (size_t v = 0; v < kVectors && i + v * lanes < dim; ++v) {
        const size_t first = i + v * lanes;
        const size_t count = std::min(lanes, dim - first);
        for (size_t w = 0; w < kWeights; ++w) {
          const auto weight = PartOfVector<ReadW>(weights[w], first, count);
          for (size_t s = 0; s < kStates; ++s) {
            float* to = lane_sums[w * kStates + s] + strip + v * lanes;
            const auto old = hn::Load(d, to);
            const auto fma = hn::MulAdd(weight, PartOfVector<ReadS>(states[s], first, count), old);
            hn::Store(hn::IfThenElse(hn::FirstN(d, count), fma, old), d, to);
          }
        }
      }
    }
  }
  for (size_t n = 0; n < kWeights * kStates; ++n) dots[n] = SumOfDotLanes(lane_sums[n]);
}

// Tiles that fill the registers: 24 accumulators of 32, or 12 of 16. One hidden row needs each
// weight once and only streams: eight chains hide the latency of fma.
template <size_t kW, size_t kS, size_t kV>
struct Tile {
  static constexpr size_t kWeights = kW, kStates = kS, kVectors = kV;
};
#if HWY_TARGET == HWY_AVX2
using FewTile = Tile<2, 3, 2>;
using ManyTile = FewTile;
#else
using FewTile = Tile<2, 3, 4>;
using ManyTile = Tile<4, 6, 1>;
#endif
constexpr size_t kStreamVectors = 8;

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

template <class ReadW, class ReadS>
void ProjectOneState(const DenseWork& work, int64_t r, int64_t begin, int64_t end) {
  const size_t dim = static_cast<size_t>(work.hidden.columns);
  const void* state = work.State(r);
  for (int64_t v = begin; v < end; ++v) {
    const void* weight = work.head.weight.Row(v);
    float dot;
    DotTile<ReadW, ReadS, 1, 1, kStreamVectors>(&weight, &state, dim, &dot);
    work.Store(r, v, dot);
  }
}

// A tile at the edge repeats its last row and forgets the result.
template <class ReadW, class ReadS, class T>
void ProjectTile(const DenseWork& work, int64_t r, int64_t rows, int64_t v, int64_t weights) {
  const void* weight[T::kWeights];
  const void* state[T::kStates];
  float dots[T::kWeights * T::kStates];
  for (size_t w = 0; w < T::kWeights; ++w) {
    weight[w] = work.head.weight.Row(v + std::min(static_cast<int64_t>(w), weights - 1));
  }
  for (size_t s = 0; s < T::kStates; ++s) {
    state[s] = work.State(r + std::min(static_cast<int64_t>(s), rows - 1));
  }
  DotTile<ReadW, ReadS, T::kWeights, T::kStates, T::kVectors>(
      weight, state, static_cast<size_t>(work.hidden.columns), dots);
  for (int64_t w = 0; w < weights; ++w) {
    for (int64_t s = 0; s < rows; ++s) {
      work.Store(r + s, v + w, dots[static_cast<size_t>(w) * T::kStates + static_cast<size_t>(s)]);
    }
  }
}

template <class ReadW, class ReadS, class T>
void ProjectTiles(const DenseWork& work, int64_t block, int64_t block_end, int64_t begin,
                  int64_t end) {
  constexpr int64_t kWeights = T::kWeights, kStates = T::kStates;
  for (int64_t v = begin; v < end; v += kWeights) {
    for (int64_t r = block; r < block_end; r += kStates) {
      ProjectTile<ReadW, ReadS, T>(work, r, std::min(kStates, block_end - r), v,
                                   std::min(kWeights, end - v));
    }
  }
}

template <class ReadW, class ReadS>
void ProjectWeights(const DenseWork& work, int64_t begin, int64_t end) {
  const int64_t rows = work.logits.rows;
  for (int64_t block = 0; block < rows; block += kBlockStates) {
    const int64_t block_end = std::min(block + kBlockStates, rows);
    const int64_t states = block_end - block;
    if (states == 1) {
      ProjectOneState<ReadW, ReadS>(work, block, begin, end);
    } else if (states <= static_cast<int64_t>(FewTile::kStates)) {
      ProjectTiles<ReadW, ReadS, FewTile>(work, block, block_end, begin, end);
    } else {
      ProjectTiles<ReadW, ReadS, ManyTile>(work, block, block_end, begin, end);
    }
  }
}

template <class ReadW, class ReadS>
void ProjectTokens(const DenseHead& head, const void* state, std::span<const int32_t> tokens,
                   float* logits) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const void* weight = head.weight.Row(tokens[i]);
    DotTile<ReadW, ReadS, 1, 1, kStreamVectors>(
        &weight, &state, static_cast<size_t>(head.weight.columns), &logits[i]);
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
