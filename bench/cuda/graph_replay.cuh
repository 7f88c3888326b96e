// Work captured into a CUDA graph, and how long it takes to replay it.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace sluice::bench {

inline void RequireCuda(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

class GraphReplay {
 public:
  // enqueue(): on the stream, which is capturing.
  template <typename Enqueue>
  GraphReplay(cudaStream_t stream, cudaStreamCaptureMode mode, Enqueue enqueue) : stream_(stream) {
    RequireCuda(cudaStreamBeginCapture(stream_, mode));
    enqueue();
    cudaGraph_t graph;
    RequireCuda(cudaStreamEndCapture(stream_, &graph));
    cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    if (result == cudaSuccess) result = cudaEventCreate(&start_);
    if (result == cudaSuccess) result = cudaEventCreate(&stop_);
    if (result != cudaSuccess) Destroy();  // no destructor runs after a throw here
    RequireCuda(result);
  }
  ~GraphReplay() { Destroy(); }
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;

  // The median of nine replays after three more. before(): called before each.
  template <typename Before>
  double Microseconds(Before before) {
    constexpr int kUncounted = 3, kCounted = 9;
    std::vector<double> times;
    for (int replay = -kUncounted; replay < kCounted; ++replay) {
      before();
      RequireCuda(cudaEventRecord(start_, stream_));
      RequireCuda(cudaGraphLaunch(executable_, stream_));
      RequireCuda(cudaEventRecord(stop_, stream_));
      RequireCuda(cudaEventSynchronize(stop_));
      float ms = 0;
      RequireCuda(cudaEventElapsedTime(&ms, start_, stop_));
      if (replay >= 0) times.push_back(1e3 * static_cast<double>(ms));
    }
    std::nth_element(times.begin(), times.begin() + kCounted / 2, times.end());
    return times[kCounted / 2];
  }
  double Microseconds() {
    return Microseconds([] {});
  }
  void Launch() const { RequireCuda(cudaGraphLaunch(executable_, stream_)); }

 private:
  void Destroy() {
    if (stop_ != nullptr) cudaEventDestroy(stop_);
    if (start_ != nullptr) cudaEventDestroy(start_);
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }

  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

}  // namespace sluice::bench
