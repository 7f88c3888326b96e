// Times a call by graph replay on rows in device memory, hot as in decoding: in the graph a kernel
// rewrites the logits before each call, and the time of a graph of rewrites alone is taken off.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/cuda/graph_replay.cuh"

namespace sluice::bench {

template <typename T>
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t size) : size_(size) {
    RequireCuda(cudaMalloc(&data_, size * sizeof(T) + 64));
  }
  explicit DeviceMemory(const std::vector<T>& host) : DeviceMemory(host.size()) { Set(host); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void Set(const std::vector<T>& host) {
    RequireCuda(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> Get() const {
    std::vector<T> host(size_);
    RequireCuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  T* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  T* data_ = nullptr;
  size_t size_;
};

__global__ inline void RewriteKernel(const uint4* from, uint4* to, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

// The largest word of each row: any work that reads everything once.
__global__ inline void ReadKernel(const uint4* rows, size_t vectors, uint32_t* largest) {
  const uint4* row = rows + blockIdx.y * vectors;
  uint32_t most = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
#pragma unroll 8
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const uint4 v = __ldg(row + i);
    most = max(max(max(v.x, v.y), max(v.z, v.w)), most);
  }
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest + blockIdx.y, most);
}

class GraphTimer {
 public:
  // The bytes of the logits, and what they are rewritten from: both in a DeviceMemory, which has
  // room for whole vectors. calls: in a graph.
  GraphTimer(const void* from, void* to, size_t bytes, int calls)
      : from_(from), to_(to), bytes_(bytes), calls_(calls) {
    RequireCuda(cudaStreamCreate(&stream_));
    rewrite_ = Time({});
  }
  ~GraphTimer() { cudaStreamDestroy(stream_); }
  GraphTimer(const GraphTimer&) = delete;
  GraphTimer& operator=(const GraphTimer&) = delete;

  // Of one call.
  double Microseconds(const std::function<void(cudaStream_t)>& call) const {
    return Time(call) - rewrite_;
  }

 private:
  double Time(const std::function<void(cudaStream_t)>& call) const {
    GraphReplay replay(stream_, cudaStreamCaptureModeGlobal, [&] {
      for (int i = 0; i < calls_; ++i) {
        const size_t blocks = std::clamp<size_t>(bytes_ / 16 / 512 / 4, 1, 132 * 4);
        RewriteKernel<<<static_cast<unsigned>(blocks), 512, 0, stream_>>>(
            static_cast<const uint4*>(from_), static_cast<uint4*>(to_), (bytes_ + 15) / 16);
        if (call) call(stream_);
      }
    });
    return replay.Microseconds() / calls_;
  }

  const void* from_;
  void* to_;
  size_t bytes_;
  int calls_;
  double rewrite_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice::bench
