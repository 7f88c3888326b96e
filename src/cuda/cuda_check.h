// The answer of a call of the CUDA run-time library, as an Error.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "sluice/error.hpp"

namespace sluice::cuda {

inline void RequireCuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // the error belongs to this call, not to the next one
  throw Error(ErrorCode::kUnavailable, what, cudaGetErrorString(result),
              result == cudaErrorInsufficientDriver
                  ? "a driver for CUDA " + std::to_string(CUDART_VERSION / 1000) +
                        " or newer, or a build for an older CUDA"
                  : "a device of compute capability 8.0 or higher that works");
}

}  // namespace sluice::cuda
