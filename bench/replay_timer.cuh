// The time of a call among others: graphs of many and of few calls are replayed, and the difference
// holds no launch. What lies in the caches stays there, unlike with graph_timer.cuh.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "bench/graph_replay.cuh"

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

 private:
  double Graph(const std::function<void(int, cudaStream_t)>& call, int calls) const {
    GraphReplay replay(stream_, cudaStreamCaptureModeGlobal, [&] {
      for (int i = 0; i < calls; ++i) call(i, stream_);
    });
    return replay.Microseconds();
  }

  cudaStream_t stream_ = nullptr;
};

}  // namespace sluice::bench
