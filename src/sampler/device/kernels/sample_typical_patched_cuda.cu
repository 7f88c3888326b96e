// The kernel of SampleWithTypical for patched rows.
#include "sampler/device/kernels/sample_typical.cuh"

namespace sluice::cuda {

const void* PatchedTypicalSampleKernelFor(DType dtype) {
  return SampleKernelFor<true, DrawWithTypical>(dtype);
}

}  // namespace sluice::cuda
