// Exact sums of weights over any number of elements, and a walk over the values of a row.
#pragma once

#include "backend/mass_sum.cuh"
#include "backend/vector_slice.cuh"

namespace sluice::cuda {

class LongMassSum {
 public:
  __device__ void Add(const MassSum::Addend& addend) {
    if (part_.addends() == MassSum::kMostAddends) {
      total_ += part_.Total();
      part_ = MassSum();
    }
    part_.Add(addend);
  }
  __device__ uint64_t Total() const { return total_ + part_.Total(); }

 private:
  MassSum part_;
  uint64_t total_ = 0;
};

// visit(x) for what this thread has of the row; masked values behind its end are among them.
template <DType kDType, typename Visit>
__device__ void ForEachValue(const VectorSlice<kDType>& slice, Visit visit) {
  FirstVectors<kDType> loaded;
  slice.LoadFirst(loaded);
  slice.ForEachAtEdges([&](float x, int) { visit(x); });
  slice.Stream(loaded, [&](const Vector<kDType>& vector, int) {
#pragma unroll
    for (int e = 0; e < Vector<kDType>::kElements; ++e) visit(vector.x[e]);
  });
}

}  // namespace sluice::cuda
