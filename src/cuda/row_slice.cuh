// The part of a row that one block of a team reads. The slices of a team follow each other in the
// order of ids.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/team.cuh"
#include "sluice/tensor.hpp"

namespace sluice::cuda {

template <DType kDType>
struct ElementOf {
  using Type = uint16_t;
};
template <>
struct ElementOf<DType::kF32> {
  using Type = float;
};

// Exact, like the scalar code of semantics/widen.h, in one instruction.
template <DType kDType>
__device__ float Widen(typename ElementOf<kDType>::Type bits) {
  if constexpr (kDType == DType::kF32) {
    return bits;
  } else if constexpr (kDType == DType::kBf16) {
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
  } else {
    return __half2float(__ushort_as_half(bits));
  }
}

// Converts a widened value back; a zero loses its sign.
template <DType kDType>
__device__ typename ElementOf<kDType>::Type Narrow(float x) {
  if constexpr (kDType == DType::kF32) {
    return x;
  } else if constexpr (kDType == DType::kBf16) {
    return static_cast<uint16_t>(__float_as_uint(x) >> 16);
  } else {
    return __half_as_ushort(__float2half_rn(x));
  }
}

// -inf
template <DType kDType>
__device__ typename ElementOf<kDType>::Type MaskedElement() {
  if constexpr (kDType == DType::kF32) {
    return -INFINITY;
  } else {
    return kDType == DType::kBf16 ? 0xff80 : 0xfc00;
  }
}

template <DType kDType>
class RowSlice {
 public:
  using Element = typename ElementOf<kDType>::Type;

  __device__ RowSlice(const Team& team, const void* row, int vocab)
      : row_(static_cast<const Element*>(row)), step_(team.threads()) {
    const int share = (vocab + team.blocks() - 1) / team.blocks();
    first_ = team.rank() * share;
    end_ = min(first_ + share, vocab);
    first_ += team.thread();
  }

  __device__ float ValueOf(int id) const { return Widen<kDType>(row_[id]); }

  // visit(x, id) for the tokens of this thread.
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
    // Three loads in flight and one copy of the visit.
    Element now = Load(first_), next = Load(first_ + step_), last = Load(first_ + 2 * step_);
#pragma unroll 1
    for (int id = first_; id < end_; id += step_) {
      const float x = Widen<kDType>(now);
      now = next;
      next = last;
      last = Load(id + 3 * step_);
      visit(x, id);
    }
  }

 private:
  __device__ Element Load(int id) const { return id < end_ ? row_[id] : Element{}; }

  const Element* row_;
  int first_;
  int end_;
  int step_;
};

}  // namespace sluice::cuda
