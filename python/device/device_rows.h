// Rows in device memory as sluice/tensor_ops.py passes them: addresses and numbers.
#pragma once

#include <cuda_runtime.h>
#include <nanobind/nanobind.h>

#include <string>

#include "python/errors.h"
#include "sluice/cuda/rows.hpp"

namespace sluice::python {

namespace nb = nanobind;

template <typename T>
T* AddressFrom(nb::handle address) {
  return reinterpret_cast<T*>(nb::cast<uintptr_t>(address));
}

// (address, elements)
template <typename T>
cuda::DeviceArray<T> ArrayFrom(nb::handle array) {
  const auto parts = nb::cast<nb::tuple>(array);
  return {AddressFrom<T>(parts[0]), nb::cast<int64_t>(parts[1])};
}

// (address of the params, their number, address of the keys, their number, max_temperature)
inline cuda::RowParams RowParamsFrom(nb::tuple params) {
  return {{AddressFrom<const SelectParams>(params[0]), nb::cast<int64_t>(params[1])},
          {AddressFrom<const NoiseKey>(params[2]), nb::cast<int64_t>(params[3])},
          {nb::cast<float>(params[4])}};
}

// Makes a device the current one for as long as this lives.
class OnDevice {
 public:
  explicit OnDevice(int index) : index_(index) {
    Require(cudaGetDevice(&before_));
    if (before_ != index_) Require(cudaSetDevice(index_));
  }
  ~OnDevice() {
    if (before_ != index_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  static void Require(cudaError_t result) {
    if (result == cudaSuccess) return;
    cudaGetLastError();  // the error belongs to this call, not to the next one
    throw Error(ErrorCode::kUnavailable, "device", cudaGetErrorString(result),
                "a device that works");
  }
  int index_;
  int before_ = 0;
};

// (address, rows, vocab, stride, dtype, device, stream)
struct DeviceLogits {
  MutableLogitsView view;
  void* stream;

  explicit DeviceLogits(nb::tuple rows)
      : view{AddressFrom<void>(rows[0]),
             nb::cast<int64_t>(rows[1]),
             nb::cast<int64_t>(rows[2]),
             nb::cast<int64_t>(rows[3]),
             DTypeFrom(nb::cast<std::string>(rows[4])),
             {DeviceKind::kCuda, nb::cast<int32_t>(rows[5])}},
        stream(AddressFrom<void>(rows[6])) {}

  static DType DTypeFrom(const std::string& name) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      if (name == Name(dtype)) return dtype;
    }
    ThrowType("logits.dtype", name, "float32, bfloat16 or float16");
  }
  template <typename T>
  cuda::DeviceArray<T> OneARow(uintptr_t address) const {
    return {reinterpret_cast<T*>(address), address == 0 ? 0 : view.rows};
  }
};

}  // namespace sluice::python
