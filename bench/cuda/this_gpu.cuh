// What a report says of the device that is measured, the first one.
#pragma once

#include <cuda_runtime.h>

#include "bench/cuda/device_report.h"
#include "bench/cuda/graph_replay.cuh"

namespace sluice::bench {

inline Gpu ThisGpu() {
  cudaDeviceProp device;
  RequireCuda(cudaGetDeviceProperties(&device, 0));
  return {device.name, device.multiProcessorCount, device.l2CacheSize};
}

}  // namespace sluice::bench
