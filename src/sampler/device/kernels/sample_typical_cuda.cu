// The kernel of SampleWithTypical.
#include "sampler/device/kernels/sample_typical.cuh"

namespace sluice::cuda {

const void* TypicalSampleKernelFor(DType dtype) {
  return SampleKernelFor<false, DrawWithTypical>(dtype);
}

}  // namespace sluice::cuda
