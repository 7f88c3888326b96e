// Exact sums of weights over any number of elements, and a walk over the values of a row.
#pragma once

#include "cuda/id_ordered_slice.cuh"
#include "cuda/mass_sum.cuh"
#include "cuda/vector_slice.cuh"

namespace sluice::cuda {

class LongMassSum {
 public:
  __device__ void Add(const MassSum::Addend& addend) {
    if (addends_ == MassSum::kMostAddends) {
      total_ += part_.Total(addends_);
      part_ = MassSum();
      addends_ = 0;
    }
    part_.Add(addend);
    ++addends_;
  }
  __device__ uint64_t Total() const { return total_ + part_.Total(addends_); }

 private:
  MassSum part_;
  uint32_t addends_ = 0;
  uint64_t total_ = 0;
};

// The mass of what this thread has of the row; see(eight): called for all of it. The sum is looked
// after once for eight tokens, not once for each.
template <DType kDType, typename See>
__device__ uint64_t MassOfSlice(const VectorSlice<kDType>& slice, float max, float scale, See see) {
  using Tokens = Eight<kDType>;
  MassSum part;
  uint32_t addends = 0;
  uint64_t mass = 0;
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    if (addends > MassSum::kMostAddends - Tokens::kTokens) {
      mass += part.Total(addends);
      part = MassSum();
      addends = 0;
    }
#pragma unroll
    for (const float x : tokens.x) part.Add(MassSum::Of(x, max, scale));
    addends += Tokens::kTokens;
    see(tokens);
  });
  return mass + part.Total(addends);
}

// visit(x) for what this thread has of the row, as it is or patched; in a row as it is, that
// includes masked values after its end.
template <DType kDType, typename Visit>
__device__ void ForEachValue(const VectorSlice<kDType>& slice, Visit visit) {
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Eight<kDType>& eight) {
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) visit(eight.x[e]);
  });
}

template <DType kDType, typename Visit>
__device__ void ForEachValue(const PatchedRowSlice<kDType>& slice, Visit visit) {
  slice.ForEach([&](float x, int) { visit(x); });
}

}  // namespace sluice::cuda
