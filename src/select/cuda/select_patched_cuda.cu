// The kernels of Select for patched rows.
#include "select/cuda/select_kernel.cuh"

namespace sluice::cuda {

const void* PatchedSelectKernelFor(DType dtype, bool by_definition) {
  return SelectKernelFor<true>(dtype, by_definition);
}

}  // namespace sluice::cuda
