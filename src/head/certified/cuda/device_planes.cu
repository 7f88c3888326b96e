// Planes on their way to a device: the bytes of planes.h, in each group of a tile in the order of a
// matrix product's operands. Thread 4 g + t of a warp has, of the rows g and g + 8 of a tile, the
// steps t, t + 4 (first 16 bytes) and t + 8, t + 12 (second). Codes are q as two's complement
// there, so that in the high half of a byte they are 16 q.
#include <cuda_runtime.h>

#include "head/certified/cuda/certified_kernels.h"
#include "head/certified/planes.h"

namespace sluice::cuda {
namespace {

constexpr int kCodeWords = kTileGroupBytes / 4;
constexpr int kScaleWords = kTileRows / 2;

// A block has a group of a tile, in place. low_scales: null, or a copy of the scales by rows.
__global__ void __launch_bounds__(kCodeWords)
    ReorderKernel(uint32_t* codes, uint32_t* scales, uint16_t* low_scales, int groups) {
  __shared__ uint32_t words[kCodeWords];
  __shared__ uint32_t scale_words[kScaleWords];
  const int i = static_cast<int>(threadIdx.x);
  codes += int64_t{blockIdx.x} * kCodeWords;
  scales += int64_t{blockIdx.x} * kScaleWords;
  words[i] = codes[i];
  if (i < kScaleWords) scale_words[i] = scales[i];
  __syncthreads();
  const int part = i / 128;
  const int thread = i / 4 % 32;
  const int word = i % 4;  // rows g, g + 8 of a step, then of that four steps on
  const int row = thread / 4 + word % 2 * 8;
  const int step = part * 8 + thread % 4 + word / 2 * 4;
  codes[i] = words[step * kTileRows + row] ^ 0x88888888u;
  if (i < kScaleWords) {
    auto scale_of = [&](int r) { return scale_words[r / 2] >> (r % 2 * 16) & 0xffffu; };
    scales[i] = scale_of(i) | scale_of(i + 8) << 16;
    if (low_scales == nullptr) return;
    const int64_t tile = blockIdx.x / static_cast<unsigned>(groups);
    const int group = static_cast<int>(blockIdx.x % static_cast<unsigned>(groups));
    for (const int r : {i, i + 8}) {
      low_scales[(tile * kTileRows + r) * groups + group] = static_cast<uint16_t>(scale_of(r));
    }
  }
}

void Require(cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  throw Error(ErrorCode::kUnavailable, "planes", cudaGetErrorString(result),
              "a device that takes them");
}

}  // namespace

size_t DevicePlaneBytes(const HeadPlanes& planes) {
  return DevicePlaneLayout(planes.kind(), planes.vocab(), planes.dim()).end;
}

DevicePlanes UploadPlanes(const HeadPlanes& planes, DeviceArray<std::byte> memory, void* stream) {
  const DevicePlaneLayout layout(planes.kind(), planes.vocab(), planes.dim());
  if (memory.data == nullptr || reinterpret_cast<uintptr_t>(memory.data) % 256 != 0) {
    ThrowInvalid("memory.data", "no address", "a pointer to device memory, aligned to 256");
  }
  CheckInRange("memory.size", memory.size, static_cast<int64_t>(layout.end), INT64_MAX);
  const PlaneView view = PlaneAccess::View(planes);
  const auto queue = static_cast<cudaStream_t>(stream);
  auto copy = [&](size_t offset, const void* from, size_t bytes) {
    Require(cudaMemcpyAsync(memory.data + offset, from, bytes, cudaMemcpyHostToDevice, queue));
  };
  const auto tile_groups = static_cast<size_t>(layout.tiles * layout.groups);
  copy(layout.dither, view.dither, static_cast<size_t>(layout.groups) * kPlaneGroup * 4);
  copy(layout.scales, view.scales, tile_groups * kTileRows * 2);
  copy(layout.codes, view.codes, tile_groups * kTileGroupBytes);
  uint16_t* low_scales = nullptr;
  if (view.errors != nullptr) {
    const size_t of_errors = static_cast<size_t>(layout.tiles) * kTileRows * 4;
    copy(layout.errors, view.errors, of_errors);
    copy(layout.low_codes, view.low_codes, tile_groups * kTileGroupBytes);
    copy(layout.low_errors, view.low_errors, of_errors);
    low_scales = reinterpret_cast<uint16_t*>(memory.data + layout.low_scales);
  }
  ReorderKernel<<<static_cast<unsigned>(tile_groups), kCodeWords, 0, queue>>>(
      reinterpret_cast<uint32_t*>(memory.data + layout.codes),
      reinterpret_cast<uint32_t*>(memory.data + layout.scales), low_scales,
      static_cast<int>(layout.groups));
  Require(cudaGetLastError());
  Require(cudaStreamSynchronize(queue));
  return {planes.kind(),
          static_cast<DType>(PlaneAccess::Header(planes).dtype),
          planes.vocab(),
          planes.dim(),
          {memory.data, memory.size}};
}

}  // namespace sluice::cuda
