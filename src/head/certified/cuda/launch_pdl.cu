// How the kernels of a certified head follow each other.
#include "cuda/cuda_check.h"
#include "cuda/row_launch.h"
#include "cuda/team.cuh"
#include "head/certified/cuda/certified_kernels.h"

namespace sluice::cuda {

void LaunchDependent(const void* kernel, const LaunchShape& shape, void* argument, void* stream) {
  constexpr const char* kWhat = "certified head";
  cudaFuncAttributes attributes;
  RequireCuda(cudaFuncGetAttributes(&attributes, kernel), kWhat);
  if (shape.shared_bytes > 48 * 1024) {
    // All there is: what one call needs must not be the most that another thread's may have.
    const size_t most = CurrentDeviceShape().most_shared_bytes - attributes.sharedSizeBytes;
    RequireCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(most)),
                kWhat);
  }
  // Code for devices before Hopper does not wait, so it must not start early, and has no clusters.
  const bool is_of_hopper = attributes.ptxVersion >= 90;
  const unsigned cluster = is_of_hopper ? shape.cluster : 1;
  if (cluster > kMostBlocks) {
    RequireCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                kWhat);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks * cluster, shape.blocks_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute of_launch[2];
  of_launch[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  of_launch[0].val.programmaticStreamSerializationAllowed = 1;
  of_launch[1].id = cudaLaunchAttributeClusterDimension;
  of_launch[1].val.clusterDim = {cluster, 1, 1};
  config.attrs = of_launch;
  config.numAttrs = is_of_hopper ? (cluster > 1 ? 2 : 1) : 0;
  RequireCuda(cudaLaunchKernelExC(&config, kernel, &argument), kWhat);
}

}  // namespace sluice::cuda
