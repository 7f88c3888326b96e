// The time of a call among others: graphs of many and of few calls are replayed, and the difference
// holds no launch. What lies in the caches stays there, unlike with graph_timer.cuh.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/graph_timer.cuh"

namespace sluice::bench {

class ReplayTimer {
 public:
  ReplayTimer() { RequireCuda(cudaStreamCreate(&stream_)); }
  ~ReplayTimer() { cudaStreamDestroy(stream_); }
  ReplayTimer(const ReplayTimer&) = delete;
  ReplayTimer& operator=(const ReplayTimer&) = delete;

  // call(i, stream) enqueues call number i.
  double Microseconds(const std::function<void(int, cudaStream_t)>& call) const {
    constexpr int kFew = 8, kMany = 40;
    return (Graph(call, kMany) - Graph(call, kFew)) / (kMany - kFew);
  }

  // Calls, one behind the other, for so long at least; how many. What is asked of `at_start` is
  // asked when the device has nothing to do and the graph is ready.
  int64_t CallsFor(double seconds, const std::function<void(int, cudaStream_t)>& call,
                   const std::function<void()>& at_start) const {
    constexpr int kCalls = 40;
    const cudaGraphExec_t executable = Executable(call, kCalls);
    RequireCuda(cudaGraphLaunch(executable, stream_));
    RequireCuda(cudaStreamSynchronize(stream_));
    at_start();
    const auto start = std::chrono::steady_clock::now();
    int64_t calls = 0;
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
           seconds) {
      for (int replay = 0; replay < 8; ++replay, calls += kCalls) {
        RequireCuda(cudaGraphLaunch(executable, stream_));
      }
      RequireCuda(cudaStreamSynchronize(stream_));
    }
    cudaGraphExecDestroy(executable);
    return calls;
  }

 private:
  cudaGraphExec_t Executable(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    RequireCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < calls; ++i) call(i, stream_);
    cudaGraph_t graph;
    RequireCuda(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable;
    RequireCuda(cudaGraphInstantiate(&executable, graph, 0));
    cudaGraphDestroy(graph);
    return executable;
  }

  double Graph(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    const cudaGraphExec_t executable = Executable(call, calls);
    cudaEvent_t start, stop;
    RequireCuda(cudaEventCreate(&start));
    RequireCuda(cudaEventCreate(&stop));
    std::vector<double> times;
    for (int replay = -3; replay < 9; ++replay) {
      RequireCuda(cudaEventRecord(start, stream_));
      RequireCuda(cudaGraphLaunch(executable, stream_));
      RequireCuda(cudaEventRecord(stop, stream_));
      RequireCuda(cudaEventSynchronize(stop));
      float ms = 0;
      RequireCuda(cudaEventElapsedTime(&ms, start, stop));
      if (replay >= 0) times.push_back(1e3 * static_cast<double>(ms));
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(executable);
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice::bench
