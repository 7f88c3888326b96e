// Tokens appended to the history of a request, and taken back: a block a request, token by token.
// What is not in the list of watched ids yet gets a place there; the entries after it move up.
#include "cuda/cuda_check.h"
#include "sampler/device/device_kernels.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// The history of one slot. Every function is called by all threads of the block.
class History {
 public:
  __device__ History(const RequestStore& store, int32_t slot)
      : store_(store),
        record_(store.records[slot]),
        progress_(store.progress[slot]),
        tokens_(store.TokensOf(slot)),
        watched_(store.WatchedOf(slot)),
        size_(progress_.tokens),
        watched_size_(progress_.watched) {}

  __device__ void Append(int32_t id) {
    if (size_ == store_.max_tokens) return;  // the host has made sure that there is room
    if (IsFirst()) tokens_[size_] = id;
    ++size_;
    if (record_.counts_tokens) {
      const int32_t at = LowerBound(watched_, watched_size_, id);
      const bool is_watched = at < watched_size_ && watched_[at].id == id;
      __syncthreads();
      if (is_watched) {
        if (IsFirst()) ++watched_[at].in_output;
      } else if (watched_size_ < store_.max_watched) {
        MoveUp(at);
        if (IsFirst()) watched_[at] = {id, 0, 1, 0};
        ++watched_size_;
      }
    }
    __syncthreads();
  }

  __device__ void RemoveLast() {
    if (size_ == record_.prompt_length) return;
    --size_;
    if (record_.counts_tokens) {
      const int32_t at = LowerBound(watched_, watched_size_, tokens_[size_]);
      const WatchedToken token = watched_[at];
      __syncthreads();
      if (token.in_output == 1 && token.in_prompt == 0 && token.marks == 0) {
        MoveDown(at);
        --watched_size_;
      } else if (IsFirst()) {
        watched_[at].in_output = token.in_output - 1;
      }
    }
    __syncthreads();
  }

  __device__ void Store() const {
    if (IsFirst()) progress_ = {size_, watched_size_};
  }

 private:
  __device__ static int Thread() { return static_cast<int>(threadIdx.x); }
  __device__ static bool IsFirst() { return threadIdx.x == 0; }

  // The entries from `at` on by one place, the last ones first.
  __device__ void MoveUp(int32_t at) const {
    for (int32_t end = watched_size_; end > at; end -= kThreads) {
      const int32_t from = end - 1 - Thread();
      WatchedToken moved = {};
      if (from >= at) moved = watched_[from];
      __syncthreads();
      if (from >= at) watched_[from + 1] = moved;
      __syncthreads();
    }
  }
  // The entries after `at`, the first ones first.
  __device__ void MoveDown(int32_t at) const {
    for (int32_t begin = at + 1; begin < watched_size_; begin += kThreads) {
      const int32_t from = begin + Thread();
      WatchedToken moved = {};
      if (from < watched_size_) moved = watched_[from];
      __syncthreads();
      if (from < watched_size_) watched_[from - 1] = moved;
      __syncthreads();
    }
  }

  const RequestStore& store_;
  const RequestRecord& record_;
  RequestProgress& progress_;
  int32_t* tokens_;
  WatchedToken* watched_;
  int32_t size_;
  int32_t watched_size_;
};

__global__ void __launch_bounds__(kThreads)
    AcceptKernel(const __grid_constant__ AcceptArgument argument) {
  const StepSpan span = argument.spans[blockIdx.x];
  History history(argument.store, span.slot);
  for (int32_t d = 0; d < span.rows; ++d) {
    const int32_t id = argument.ids[span.first_row + d];
    if (id < 0) {
      if (d == 0 && argument.goes_on_with_zero) history.Append(0);
      break;
    }
    history.Append(id);
  }
  history.Store();
}

__global__ void __launch_bounds__(kThreads)
    AppendKernel(const __grid_constant__ AppendArgument argument) {
  History history(argument.store, argument.slot);
  for (int32_t i = 0; i < argument.count; ++i) history.Append(argument.ids[i]);
  history.Store();
}

__global__ void __launch_bounds__(kThreads)
    RollbackKernel(const __grid_constant__ RequestStore store, int32_t slot, int32_t count) {
  History history(store, slot);
  for (int32_t i = 0; i < count; ++i) history.RemoveLast();
  history.Store();
}

}  // namespace

void LaunchAccept(const AcceptArgument& argument, int64_t requests, void* stream) {
  if (requests == 0) return;
  AcceptKernel<<<static_cast<unsigned>(requests), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchAppend(const AppendArgument& argument, void* stream) {
  AppendKernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchRollback(const RequestStore& store, int32_t slot, int32_t count, void* stream) {
  RollbackKernel<<<1, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(store, slot, count);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
