// The kernel of Sample and SampleIds for patched rows.
#include "sampler/device/kernels/sample_kernel.cuh"

namespace sluice::cuda {

const void* PatchedSampleKernelFor(DType dtype) { return SampleKernelFor<true>(dtype); }

}  // namespace sluice::cuda
