// What a step does of rows that processors change, before and after the processors.
#include <algorithm>

#include "cuda/cuda_check.h"
#include "sampler/device/device_kernels.h"
#include "semantics/adjust/adjust.h"
#include "semantics/widen.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int32_t kMostBlocks = 32;  // of a row

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// The blocks of a row share it: blockIdx.x is the part, blockIdx.y the row.
struct Part {
  int32_t first;
  int32_t end;
};
__device__ Part PartOf(int32_t vocab) {
  const int32_t parts = static_cast<int32_t>(gridDim.x);
  const int32_t share = (vocab + parts - 1) / parts;
  const int32_t first = min(static_cast<int32_t>(blockIdx.x) * share, vocab);
  return {first, min(first + share, vocab)};
}
dim3 GridOf(int32_t vocab, int64_t count) {
  const int32_t parts = std::clamp((vocab + 4 * kThreads - 1) / (4 * kThreads), 1, kMostBlocks);
  return {static_cast<unsigned>(parts), static_cast<unsigned>(count)};
}

__device__ int32_t FirstNotBelow(const RowPatch& patch, int32_t id) {
  int32_t begin = 0;
  int32_t end = patch.count;
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (patch.ids[middle] < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

__global__ void __launch_bounds__(kThreads)
    WriteOutKernel(const __grid_constant__ WriteOutArgument argument) {
  const int w = static_cast<int>(blockIdx.y);
  const int32_t r = argument.places[w];
  const RowPatch patch = argument.patches == nullptr ? RowPatch{} : argument.patches[r];
  const void* logits = static_cast<const char*>(argument.logits) + r * argument.stride_bytes;
  float* values = argument.values + w * argument.stride;
  const Part part = PartOf(argument.vocab);
  for (int32_t id = part.first + Thread(); id < part.end; id += kThreads) {
    const bool is_masked = patch.others_masked || (patch.allowed != nullptr &&
                                                   !semantics::BitmaskAllows(patch.allowed, id));
    values[id] = is_masked ? -INFINITY : semantics::Load(logits, argument.dtype, id);
  }
  __syncthreads();  // the patches come on top
  for (int32_t i = FirstNotBelow(patch, part.first) + Thread();
       i < patch.count && patch.ids[i] < part.end; i += kThreads) {
    values[patch.ids[i]] = patch.values[i];
  }
  if (blockIdx.x == 0 && Thread() == 0) {
    argument.written_params[w] = argument.params[r];
    argument.written_keys[w] = argument.keys[r];
  }
}

__global__ void __launch_bounds__(kThreads)
    ForceKernel(const __grid_constant__ ForceArgument argument) {
  const int w = static_cast<int>(blockIdx.y);
  const int32_t forced = argument.forced[w];
  if (forced < 0) return;
  const Part part = PartOf(argument.vocab);
  for (int32_t id = part.first + Thread(); id < part.end; id += kThreads) {
    argument.values[w * argument.stride + id] = id == forced ? 0.0f : -INFINITY;
  }
}

__global__ void PlaceKernel(const __grid_constant__ PlaceArgument argument) {
  const int32_t w = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (w >= argument.count) return;
  const int32_t r = argument.places[w];
  if (argument.results != nullptr) {
    argument.results[r] = argument.from[w];
  } else {
    argument.ids[r] = argument.from[w].id;
    argument.statuses[r] = argument.from[w].status;
  }
}

__global__ void SettleMassesKernel(const __grid_constant__ SettleMassesArgument argument) {
  const int32_t r = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= argument.count) return;
  const int32_t place = argument.rows[r].processed;
  if (argument.ids[r] < 0) {
    argument.masses[r] = CutMass{};
  } else if (place >= 0) {
    argument.masses[r] = argument.processed[place];
  }
}

unsigned BlocksFor(int32_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void LaunchWriteOut(const WriteOutArgument& argument, int64_t count, void* stream) {
  if (count == 0) return;
  WriteOutKernel<<<GridOf(argument.vocab, count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchForce(const ForceArgument& argument, int64_t count, void* stream) {
  if (count == 0) return;
  ForceKernel<<<GridOf(argument.vocab, count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchPlace(const PlaceArgument& argument, void* stream) {
  if (argument.count == 0) return;
  PlaceKernel<<<BlocksFor(argument.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchSettleMasses(const SettleMassesArgument& argument, void* stream) {
  if (argument.count == 0) return;
  SettleMassesKernel<<<BlocksFor(argument.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
