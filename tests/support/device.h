// Device memory for tests.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "sluice/cuda/rows.hpp"
#include "tests/support/batch.h"

namespace sluice::test {

// Skips where there is no GPU.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

inline void Require(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

// An array in device memory, with a copy's contents or with garbage.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t size) : size_(size) {
    Require(cudaMalloc(&data_, size * sizeof(T) + 1));
    Require(cudaMemset(data_, 0xa5, size * sizeof(T) + 1));
  }
  explicit OnDevice(const std::vector<T>& host) : OnDevice(host.size()) { Set(host); }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void Set(const std::vector<T>& host) {
    Require(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  // Waits for the work before it.
  std::vector<T> Get() const {
    std::vector<T> host(size_);
    Require(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

  T* data() const { return data_; }
  cuda::DeviceArray<T> array() const { return {data_, static_cast<int64_t>(size_)}; }
  operator cuda::DeviceArray<T>() const { return array(); }        // NOLINT
  operator cuda::DeviceArray<const T>() const { return array(); }  // NOLINT

 private:
  T* data_ = nullptr;
  size_t size_;
};

// Where the first row of a batch starts. Loads of several elements at once need it aligned.
enum class RowStartAt { kAligned, kOneElementOn };

// A Batch in device memory.
class DeviceBatch {
 public:
  explicit DeviceBatch(const Batch& batch, RowStartAt start = RowStartAt::kOneElementOn)
      : view_(batch.view()),
        before_(start == RowStartAt::kAligned ? 0 : SizeOf(view_.dtype)),
        bytes_(before_ + batch.row_bytes().size()) {
    data_ = bytes_.data() + before_;
    const std::span<const std::byte> bytes = batch.row_bytes();
    Require(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }

  LogitsView view() const {
    LogitsView view = view_;
    view.data = data_;
    view.device = {DeviceKind::kCuda, 0};
    return view;
  }
  MutableLogitsView mutable_view() const {
    return {data_, view_.rows, view_.vocab, view_.stride, view_.dtype, {DeviceKind::kCuda, 0}};
  }
  // As Batch::row_bytes.
  std::vector<std::byte> row_bytes() const {
    std::vector<std::byte> bytes = bytes_.Get();
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(before_));
    return bytes;
  }

 private:
  LogitsView view_;
  size_t before_;
  OnDevice<std::byte> bytes_;
  std::byte* data_;
};

}  // namespace sluice::test
