// The kernel of SampleWithTypical.
#include "pipeline/sample_typical.cuh"

namespace sluice::cuda {

const void* TypicalSampleKernelFor(DType dtype) {
  return SampleKernelFor<false, DrawWithTypical>(dtype);
}

}  // namespace sluice::cuda
