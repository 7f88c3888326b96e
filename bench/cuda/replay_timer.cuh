// The time of a call among others: graphs of many and of few calls are replayed, and the difference
// holds no launch. What lies in the caches stays there, unlike with graph_timer.cuh.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "bench/cuda/graph_replay.cuh"

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

  // Calls, one after the other, for at least this long; how many. `at_start` is called when the
  // device has nothing to do and the graph is ready.
  int64_t CallsFor(double seconds, const std::function<void(int, cudaStream_t)>& call,
                   const std::function<void()>& at_start) const {
    constexpr int kCalls = 40;
    const GraphReplay replay = Captured(call, kCalls);
    replay.Launch();
    RequireCuda(cudaStreamSynchronize(stream_));
    at_start();
    const auto start = std::chrono::steady_clock::now();
    int64_t calls = 0;
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
           seconds) {
      for (int n = 0; n < 8; ++n, calls += kCalls) replay.Launch();
      RequireCuda(cudaStreamSynchronize(stream_));
    }
    return calls;
  }

 private:
  GraphReplay Captured(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    return GraphReplay(stream_, cudaStreamCaptureModeGlobal, [&] {
      for (int i = 0; i < calls; ++i) call(i, stream_);
    });
  }

  double Graph(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    return Captured(call, calls).Microseconds();
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice::bench
