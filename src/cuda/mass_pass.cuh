// A row that a team has just streamed, once more, for its mass, by the warps that have nothing else
// to do: each takes groups of vectors until there are none left. Those that the first read had
// last, at the ends of the warps' stretches, come first, because they are the nearest: more rows
// than the L2 has room for are a part there.
#pragma once

#include "cuda/rows_argument.cuh"
#include "cuda/vector_slice.cuh"
#include "semantics/weight.h"

namespace sluice::cuda {

// The sum of eight weights, of d = x - max. Each of the two words is carried on in the float that
// it is cut off in, which has room for eight: 16 instructions a token, 18 by MassSum.
__device__ inline uint64_t MassOfEight(const float (&d)[8], float scale) {
  constexpr float kMagic = 0x1.8p23f;
  constexpr float kBase = 8.0f;
  float high = kBase, low = kBase;
#pragma unroll
  for (const float distance : d) {
    const float t = fmaxf(distance * scale, -41.0f);  // below -40 there is no weight
    const float shifted = __fadd_rd(t, kMagic);
    const float f = t - (shifted - kMagic);
    const float r = semantics::Exp2Fraction(f);
    const float w = __uint_as_float(__float_as_uint(r) + (__float_as_uint(shifted) << 23));
    const float through = __fadd_rz(high, w);
    low = __fmaf_rz(w - (through - high), 0x1p20f, low);
    high = through;
  }
  const uint32_t base = __float_as_uint(kBase);
  return (static_cast<uint64_t>(__float_as_uint(high) - base) << 20) +
         (__float_as_uint(low) - base);
}

// The warps of a team are a power of two.
__device__ inline int LogOfWarps(const Team& team) {
  return 31 - __clz(team.threads() / kWarpSize * team.blocks());
}

template <DType kDType>
class MassPass {
 public:
  __device__ MassPass(const Team& team, const RowsArgument& rows, int index)
      : row_(static_cast<const Element*>(RowOf(rows, index))),
        vocab_(rows.vocab),
        whole_(reinterpret_cast<uintptr_t>(row_) % 16 == 0 ? vocab_ / kElements : 0),
        eights_((vocab_ + kTokensOfEights - 1) / kTokensOfEights),
        shift_(LogOfWarps(team)),
        lane_(team.lane()) {
    const int stretch = (((eights_ - 1) >> shift_) + 1) * kTogether;  // the longest one
    const int of_stretch = whole_ > 0 ? (stretch + kVectorsAtOnce - 1) / kVectorsAtOnce : 0;
    const int groups = of_stretch << shift_;
    const int share = groups / team.blocks();
    first_group_ = share * team.rank();
    end_group_ = first_group_ + share;
    first_id_ = whole_ * kElements + team.rank() * team.threads() + team.thread();
    step_ = team.blocks() * team.threads();
  }

  // The mass that this thread finds. taken: in shared memory of this block, 0 before. await_max():
  // called when the first vectors are on the way.
  template <typename AwaitMax>
  __device__ uint64_t Mass(AwaitMax await_max, float scale, uint32_t& taken) const {
    uint64_t mass = 0;
    uint4 loaded[kVectorsAtOnce] = {};
    auto load = [&](const Group& group, int i) {
      if (group.Has(i)) loaded[i] = LoadOnce(group.vectors + i * kWarpSize);
    };
    Group group = Take(taken);
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) load(group, i);
    const float max = await_max();
    float max_of[kVectorsAtOnce];  // +inf where there is no vector, so that nothing has a weight
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) max_of[i] = group.Has(i) ? max : INFINITY;
#pragma unroll 1
    while (group.vectors != nullptr) {
      group = Take(taken);
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce; i += kTogether) {
        float d[Eight<kDType>::kTokens];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const Vector<kDType> vector(loaded[i + j]);
#pragma unroll
          for (int e = 0; e < kElements; ++e) d[j * kElements + e] = vector.x[e] - max_of[i + j];
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          load(group, i + j);
          max_of[i + j] = group.Has(i + j) ? max : INFINITY;
        }
        mass += MassOfEight(d, scale);
      }
    }
#pragma unroll 8
    for (int id = first_id_; id < vocab_; id += step_) {  // what is in no vector
      mass += semantics::Weight(Widen<kDType>(row_[id]), max, scale);
    }
    return mass;
  }

 private:
  using Element = typename ElementOf<kDType>::Type;
  static constexpr int kElements = Vector<kDType>::kElements;
  static constexpr int kTogether = Eight<kDType>::kVectors;
  static constexpr int kTokensOfEights = Eight<kDType>::kTokens * kWarpSize;  // of a warp

  // Vectors of a stretch, of this lane.
  struct Group {
    const uint4* vectors;  // null: no group is left
    int place;             // of the first one in the stretch; it may begin before that
    uint32_t size;         // of the stretch

    __device__ bool Has(int i) const { return static_cast<uint32_t>(place + i * kWarpSize) < size; }
  };

  // By the lanes of a warp together.
  __device__ Group Take(uint32_t& taken) const {
    uint32_t next = 0;
    if (lane_ == 0) next = atomicAdd(&taken, 1u);
    const int number = first_group_ + static_cast<int>(__shfl_sync(~0u, next, 0));
    if (number >= end_group_) return {nullptr, 0, 0};
    const int stretch = number & ((1 << shift_) - 1);
    const int first = ((eights_ * stretch) >> shift_) * kVectorsOfEights;
    const int end = ((eights_ * (stretch + 1)) >> shift_) * kVectorsOfEights;
    const int begin = end - ((number >> shift_) + 1) * kVectorsAtOnce * kWarpSize + lane_;
    return {reinterpret_cast<const uint4*>(row_) + begin, begin - first,
            static_cast<uint32_t>(::max(min(end, whole_) - first, 0))};
  }

  static constexpr int kVectorsOfEights = kTogether * kWarpSize;

  const Element* row_;
  int vocab_;
  int whole_;   // vectors that are loaded at once, as in VectorSlice
  int eights_;  // of whole warps
  int shift_;   // of the number of stretches
  int lane_;
  int first_group_;  // of this block
  int end_group_;
  int first_id_;  // of this thread, of those that are in no vector
  int step_;
};

}  // namespace sluice::cuda
