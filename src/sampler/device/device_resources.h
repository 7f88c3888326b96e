// Streams, events and memory of the CUDA run-time library, freed with their owner.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "cuda/cuda_check.h"

namespace sluice::cuda {

class Stream {
 public:
  Stream() { RequireCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { RequireCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT(google-explicit-constructor)

  void Record(cudaStream_t stream) const { RequireCuda(cudaEventRecord(event_, stream), "event"); }
  // `stream` continues after what was recorded last.
  void HoldBack(cudaStream_t stream) const {
    RequireCuda(cudaStreamWaitEvent(stream, event_, 0), "event");
  }
  bool IsOver() const {
    const cudaError_t answer = cudaEventQuery(event_);
    if (answer == cudaErrorNotReady) return false;
    RequireCuda(answer, "event");
    return true;
  }
  void Await() const { RequireCuda(cudaEventSynchronize(event_), "event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

// A graph that can be launched. The driver keeps one that runs until it has run.
class Graph {
 public:
  explicit Graph(cudaGraph_t graph) {
    RequireCuda(cudaGraphInstantiate(&executable_, graph, 0), "graph");
  }
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
  }
  operator cudaGraphExec_t() const { return executable_; }  // NOLINT(google-explicit-constructor)

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// Memory on the device, or pinned memory.
class CudaBlock {
 public:
  enum class Kind { kDevice, kPinned };

  CudaBlock(Kind kind, size_t bytes) : kind_(kind) {
    void* data = nullptr;
    RequireCuda(kind == Kind::kDevice ? cudaMalloc(&data, bytes) : cudaMallocHost(&data, bytes),
                kind == Kind::kDevice ? "memory" : "pinned memory");
    data_ = static_cast<std::byte*>(data);
  }
  ~CudaBlock() { kind_ == Kind::kDevice ? cudaFree(data_) : cudaFreeHost(data_); }
  CudaBlock(const CudaBlock&) = delete;
  CudaBlock& operator=(const CudaBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  Kind kind_;
  std::byte* data_ = nullptr;
};

// Pinned memory from which small things are copied to the device: each is written here and sent,
// and its place is used again when it has arrived.
class PinnedRing {
 public:
  explicit PinnedRing(size_t bytes) : block_(CudaBlock::Kind::kPinned, bytes), bytes_(bytes) {}

  // At most the bytes of the ring. Sent or NotSent ends it.
  std::byte* Take(size_t bytes) {
    if (live_ == kEvents) Retire();
    if (end_ + bytes > bytes_) {  // the rest at the end stays unused
      while (live_ > 0 && Oldest().begin >= end_) Retire();
      end_ = 0;
    }
    while (live_ > 0 && Oldest().begin < end_ + bytes && Oldest().end > end_) Retire();
    Entry& entry = entries_[(first_ + live_) % kEvents];
    entry.begin = end_;
    entry.end = end_ + bytes;
    end_ += bytes;
    return block_.data() + entry.begin;
  }
  void Sent(cudaStream_t stream) {
    entries_[(first_ + live_) % kEvents].arrived.Record(stream);
    ++live_;
  }
  // Ends a Take after a copy that failed; part of the piece may still be in flight. Does not throw.
  void NotSent(cudaStream_t stream) {
    if (cudaEventRecord(entries_[(first_ + live_) % kEvents].arrived, stream) == cudaSuccess) {
      ++live_;
    } else {
      ++waits_;
      cudaStreamSynchronize(stream);
    }
    cudaGetLastError();
  }
  int64_t waits() const { return waits_; }

 private:
  static constexpr size_t kEvents = 512;
  struct Entry {
    size_t begin = 0;
    size_t end = 0;
    Event arrived;
  };

  Entry& Oldest() { return entries_[first_ % kEvents]; }
  void Retire() {
    if (!Oldest().arrived.IsOver()) {
      ++waits_;
      Oldest().arrived.Await();
    }
    ++first_;
    --live_;
  }

  CudaBlock block_;
  size_t bytes_;
  size_t end_ = 0;  // of what was taken last
  size_t first_ = 0;
  size_t live_ = 0;
  std::vector<Entry> entries_{kEvents};
  int64_t waits_ = 0;
};

}  // namespace sluice::cuda
