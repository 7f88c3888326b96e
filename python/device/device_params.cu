#include <cuda_runtime.h>

#include "python/device/device_params.h"
#include "sluice/error.hpp"

namespace sluice::python {
namespace {

constexpr int kThreads = 128;

__device__ double RealAt(const Field& field, int64_t at) {
  switch (field.source) {
    case FieldSource::kF32:
      return static_cast<const float*>(field.data)[at];
    case FieldSource::kF64:
      return static_cast<const double*>(field.data)[at];
    case FieldSource::kI32:
      return static_cast<const int32_t*>(field.data)[at];
    default:
      return static_cast<double>(static_cast<const int64_t*>(field.data)[at]);
  }
}

__device__ int64_t WholeAt(const Field& field, int64_t at) {
  return field.source == FieldSource::kI32 ? static_cast<const int32_t*>(field.data)[at]
                                           : static_cast<const int64_t*>(field.data)[at];
}

__device__ void Write(const Field& field, int64_t row, unsigned char* to) {
  if (field.source == FieldSource::kNumber) {
    for (int i = 0; i < field.size; ++i) to[i] = static_cast<unsigned char>(field.number >> 8 * i);
    return;
  }
  const int64_t at = row * field.stride;
  switch (field.type) {
    case FieldType::kF32:
      *reinterpret_cast<float*>(to) = static_cast<float>(RealAt(field, at));
      break;
    case FieldType::kI32:
      *reinterpret_cast<int32_t*>(to) = static_cast<int32_t>(
          min(max(WholeAt(field, at), int64_t{INT32_MIN}), int64_t{INT32_MAX}));
      break;
    case FieldType::kU32:
      *reinterpret_cast<uint32_t*>(to) = static_cast<uint32_t>(WholeAt(field, at));
      break;
    default:
      *reinterpret_cast<uint64_t*>(to) = static_cast<uint64_t>(WholeAt(field, at));
  }
}

__global__ void FieldWritesKernel(const __grid_constant__ FieldWrites writes) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= writes.rows) return;
  if (writes.resets) {
    writes.params[row] = SelectParams{};
    writes.keys[row] = NoiseKey{};
  }
  for (int i = 0; i < writes.count; ++i) {
    const Field& field = writes.fields[i];
    unsigned char* element = field.is_of_key
                                 ? reinterpret_cast<unsigned char*>(writes.keys + row)
                                 : reinterpret_cast<unsigned char*>(writes.params + row);
    Write(field, row, element + field.offset);
  }
}

}  // namespace

void LaunchFieldWrites(const FieldWrites& writes, void* stream) {
  if (writes.rows == 0) return;
  const int blocks = (writes.rows + kThreads - 1) / kThreads;
  FieldWritesKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(writes);
  const cudaError_t result = cudaGetLastError();
  if (result != cudaSuccess) {
    throw Error(ErrorCode::kUnavailable, "kernel", cudaGetErrorString(result),
                "a device of compute capability 8.0 or higher that works");
  }
}

}  // namespace sluice::python
