// K-means on a device. A block has 128 points and goes through all means, 128 at a time: a product
// of matrices with its results in registers, where the best mean of each point is kept. Means are
// sums of their points in the order of the rows, in fp64, so nothing depends on which block is
// first.
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "cuda/cuda_check.h"
#include "sluice/research/device_clusters.hpp"

namespace sluice::research {

using namespace cuda;

namespace {

constexpr int kTile = 128;  // points of a block, and means at a time
constexpr int kDepth = 16;  // elements at a time
constexpr int kThreads = 256;
constexpr int kOfThread = 8;  // points of a thread, and means
constexpr int kThreadsOfPoint = kTile / kOfThread;

struct MeansArgument {
  const float* points;  // [count, width], those to divide alone
  float* means;         // [clusters, width]
  float* halves;        // of the squares of the means' norms
  int32_t* cluster_of;
  const int32_t* order;   // points, cluster after cluster
  const int32_t* starts;  // [clusters + 1] in that
  int64_t width;
  int32_t count;
  int32_t clusters;
  bool is_spherical;
};

// In one order whatever the launch. By all threads of a block; to all.
__device__ double SumOfBlock(double mine) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = mine;
  __syncthreads();
#pragma unroll 1
  for (unsigned step = kThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

__device__ double SquaresOf(const float* mean, int64_t width) {
  double squares = 0.0;
  for (int64_t j = threadIdx.x; j < width; j += kThreads) {
    squares += static_cast<double>(mean[j]) * static_cast<double>(mean[j]);
  }
  return SumOfBlock(squares);
}

__global__ void __launch_bounds__(kThreads) HalvesKernel(MeansArgument task) {
  const double squares = SquaresOf(task.means + blockIdx.x * task.width, task.width);
  if (threadIdx.x == 0) {
    task.halves[blockIdx.x] = task.is_spherical ? 0.0f : static_cast<float>(0.5 * squares);
  }
}

// 128 rows of a matrix, some elements of each, by columns; what there is not is 0.
__device__ void Stage(float (&to)[kDepth][kTile], const float* from, int first, int rows,
                      int64_t width, int64_t at) {
#pragma unroll
  for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
    const int place = static_cast<int>(threadIdx.x) + i * kThreads;
    const int row = place / kDepth;
    const int64_t j = at + place % kDepth;
    to[place % kDepth][row] =
        first + row < rows && j < width ? from[int64_t{first + row} * width + j] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) AssignKernel(MeansArgument task) {
  __shared__ float points[kDepth][kTile];
  __shared__ float means[kDepth][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int my_point = thread / kThreadsOfPoint * kOfThread;
  const int my_mean = thread % kThreadsOfPoint;  // and 16 on, and so forth
  const int first_point = static_cast<int>(blockIdx.x) * kTile;
  float best[kOfThread];
  int32_t best_mean[kOfThread] = {};
#pragma unroll
  for (float& score : best) score = -INFINITY;
#pragma unroll 1
  for (int first = 0; first < task.clusters; first += kTile) {
    float sum[kOfThread][kOfThread] = {};
#pragma unroll 1
    for (int64_t at = 0; at < task.width; at += kDepth) {
      __syncthreads();
      Stage(points, task.points, first_point, task.count, task.width, at);
      Stage(means, task.means, first, task.clusters, task.width, at);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        float point[kOfThread], mean[kOfThread];
#pragma unroll
        for (int i = 0; i < kOfThread; ++i) {
          point[i] = points[d][my_point + i];
          mean[i] = means[d][my_mean + i * kThreadsOfPoint];
        }
#pragma unroll
        for (int p = 0; p < kOfThread; ++p) {
#pragma unroll
          for (int m = 0; m < kOfThread; ++m) sum[p][m] = __fmaf_rn(point[p], mean[m], sum[p][m]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kOfThread; ++m) {
      const int32_t c = first + my_mean + m * kThreadsOfPoint;
      if (c >= task.clusters) continue;
      const float half = task.halves[c];
#pragma unroll
      for (int p = 0; p < kOfThread; ++p) {
        if (!(sum[p][m] - half > best[p])) continue;
        best[p] = sum[p][m] - half;
        best_mean[p] = c;
      }
    }
  }
  // Of the sixteen threads that share a point, which are neighbours; of ties the first mean.
#pragma unroll
  for (int p = 0; p < kOfThread; ++p) {
#pragma unroll
    for (int step = kThreadsOfPoint / 2; step > 0; step /= 2) {
      const float score = __shfl_xor_sync(~0u, best[p], step);
      const int32_t c = __shfl_xor_sync(~0u, best_mean[p], step);
      if (score > best[p] || (score == best[p] && c < best_mean[p])) {
        best[p] = score;
        best_mean[p] = c;
      }
    }
    const int point = first_point + my_point + p;
    if (my_mean == 0 && point < task.count) task.cluster_of[point] = best_mean[p];
  }
}

// A block has a mean, a thread columns of it.
__global__ void __launch_bounds__(kThreads) MoveKernel(MeansArgument task) {
  const int32_t begin = task.starts[blockIdx.x];
  const int32_t end = task.starts[blockIdx.x + 1];
  float* const mean = task.means + blockIdx.x * task.width;
  if (begin == end) return;
  for (int64_t j = threadIdx.x; j < task.width; j += kThreads) {
    double sum = 0.0;
    for (int32_t i = begin; i < end; ++i) {
      sum += static_cast<double>(task.points[int64_t{task.order[i]} * task.width + j]);
    }
    mean[j] = static_cast<float>(sum / static_cast<double>(end - begin));
  }
  if (!task.is_spherical) return;
  const double norm = sqrt(SquaresOf(mean, task.width));
  for (int64_t j = threadIdx.x; norm > 0.0 && j < task.width; j += kThreads) {
    mean[j] = static_cast<float>(static_cast<double>(mean[j]) / norm);
  }
}

constexpr const char* kWhat = "k-means";

// For as long as a task takes.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    size_t free = 0, all = 0;
    RequireCuda(cudaMemGetInfo(&free, &all), kWhat);
    const cudaError_t result = cudaMalloc(&data_, bytes);
    if (result != cudaErrorMemoryAllocation) {
      RequireCuda(result, kWhat);
      return;
    }
    cudaGetLastError();
    throw Error(ErrorCode::kExhausted, "device memory for k-means",
                std::to_string(bytes) + " bytes",
                "up to the " + std::to_string(free) + " bytes that are free");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class Stream {
 public:
  Stream() { RequireCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), kWhat); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct Sizes {
  explicit Sizes(const MeansTask& task)
      : points(task.rows.size() * static_cast<size_t>(task.width) * sizeof(float)),
        means(task.means.size_bytes()),
        clusters(task.means.size() / static_cast<size_t>(task.width)) {}
  size_t points;
  size_t means;
  size_t clusters;
  size_t rows_at() const { return points + means + clusters * sizeof(float); }
};

class Finding {
 public:
  explicit Finding(const MeansTask& task)
      : task_(task),
        sizes_(task),
        memory_(sizes_.rows_at() + (2 * task.rows.size() + sizes_.clusters + 1) * sizeof(int32_t)) {
    std::byte* const data = memory_.data();
    argument_.means = reinterpret_cast<float*>(data + sizes_.points);
    argument_.points = reinterpret_cast<const float*>(data);
    argument_.halves = argument_.means + task.means.size();
    argument_.cluster_of = reinterpret_cast<int32_t*>(data + sizes_.rows_at());
    argument_.order = argument_.cluster_of + task.rows.size();
    argument_.starts = argument_.order + task.rows.size();
    argument_.width = task.width;
    argument_.count = static_cast<int32_t>(task.rows.size());
    argument_.clusters = static_cast<int32_t>(sizes_.clusters);
    argument_.is_spherical = task.is_spherical;
    CopyPoints();
    Copy(argument_.means, task.means.data(), sizes_.means, cudaMemcpyHostToDevice);
  }

  void Assign() {
    HalvesKernel<<<Clusters(), kThreads, 0, stream_.get()>>>(argument_);
    const auto blocks = static_cast<unsigned>((argument_.count + kTile - 1) / kTile);
    AssignKernel<<<blocks, kThreads, 0, stream_.get()>>>(argument_);
    RequireCuda(cudaGetLastError(), kWhat);
    Copy(task_.cluster_of.data(), argument_.cluster_of, task_.cluster_of.size_bytes(),
         cudaMemcpyDeviceToHost);
  }

  void Move() {
    std::vector<int32_t> starts(sizes_.clusters + 1);
    for (const int32_t c : task_.cluster_of) ++starts[static_cast<size_t>(c) + 1];
    for (size_t c = 0; c < sizes_.clusters; ++c) starts[c + 1] += starts[c];
    std::vector<int32_t> order(task_.rows.size());
    std::vector<int32_t> next = starts;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto c = static_cast<size_t>(task_.cluster_of[i]);
      order[static_cast<size_t>(next[c]++)] = static_cast<int32_t>(i);
    }
    Copy(const_cast<int32_t*>(argument_.order), order.data(), order.size() * sizeof(int32_t),
         cudaMemcpyHostToDevice);
    Copy(const_cast<int32_t*>(argument_.starts), starts.data(), starts.size() * sizeof(int32_t),
         cudaMemcpyHostToDevice);
    MoveKernel<<<Clusters(), kThreads, 0, stream_.get()>>>(argument_);
    RequireCuda(cudaGetLastError(), kWhat);
  }

  void TakeMeans() {
    Copy(task_.means.data(), argument_.means, sizes_.means, cudaMemcpyDeviceToHost);
  }

 private:
  unsigned Clusters() const { return static_cast<unsigned>(argument_.clusters); }

  // And waits: the memory of the host is the caller's, or goes.
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    RequireCuda(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), kWhat);
    RequireCuda(cudaStreamSynchronize(stream_.get()), kWhat);
  }

  // Neighbouring rows at once.
  void CopyPoints() {
    const auto of_row = static_cast<size_t>(task_.width) * sizeof(float);
    for (size_t i = 0, end = 0; i < task_.rows.size(); i = end) {
      for (end = i + 1; end < task_.rows.size(); ++end) {
        if (task_.rows[end] != task_.rows[end - 1] + 1) break;
      }
      Copy(memory_.data() + i * of_row, task_.points + int64_t{task_.rows[i]} * task_.width,
           (end - i) * of_row, cudaMemcpyHostToDevice);
    }
  }

  const MeansTask& task_;
  const Sizes sizes_;
  const Memory memory_;
  const Stream stream_;
  MeansArgument argument_ = {};
};

}  // namespace

void DeviceMeans::Find(const MeansTask& task) const {
  if (task.rows.empty()) return;
  Finding finding(task);
  finding.Assign();
  for (int32_t round = 0; round < task.rounds; ++round) {
    finding.Move();
    finding.Assign();
    if (task.progress != nullptr) task.progress(task.progress_context, round + 1);
  }
  finding.TakeMeans();
}

}  // namespace sluice::research
