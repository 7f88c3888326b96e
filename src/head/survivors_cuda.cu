// From intervals to the exact logits of the tokens that may matter.
#include "head/device_course.cuh"
#include "head/dot_lanes.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"

namespace sluice::cuda {
namespace {

using Way = RowCourse::Way;

// --- threshold ---

constexpr int kThresholdThreads = 1024;
constexpr int kKeysOfThread = 16;  // kept in registers; those of larger heads are read again

struct ThresholdMemory {
  uint32_t most;
  uint32_t counts[32];
};

// The order keys of a row's tile ends.
class TileKeys {
 public:
  __device__ TileKeys(const float* ends, int tiles) : ends_(ends), tiles_(tiles) {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int place = static_cast<int>(threadIdx.x) + i * kThresholdThreads;
      keys_[i] = place < tiles ? semantics::OrderKey(ends[place]) : 0;
    }
  }
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) visit(keys_[i]);
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x) + kKeysOfThread * kThresholdThreads;
         place < tiles_; place += kThresholdThreads) {
      visit(semantics::OrderKey(ends_[place]));
    }
  }

 private:
  const float* ends_;
  int tiles_;
  uint32_t keys_[kKeysOfThread];
};

__device__ uint32_t LargestKey(const TileKeys& keys, ThresholdMemory& memory) {
  if (threadIdx.x == 0) memory.most = 0;
  __syncthreads();
  uint32_t most = 0;
  keys.ForEach([&](uint32_t key) { most = max(most, key); });
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % kWarpSize == 0) atomicMax(&memory.most, most);
  __syncthreads();
  return memory.most;
}

// A key that at least k of them reach, and few more; 0 when there are not so many.
__device__ uint32_t KeyOfRank(const TileKeys& keys, int k, ThresholdMemory& memory) {
  uint32_t high = LargestKey(keys, memory);
  if (k == 1) return high;
  if (threadIdx.x < 32) memory.counts[threadIdx.x] = 0;
  __syncthreads();
  uint32_t low = 0;
#pragma unroll 1
  for (int probe = 0; low < high; ++probe) {
    const uint32_t middle = high - (high - low) / 2;
    uint32_t of_thread = 0;
    keys.ForEach([&](uint32_t key) { of_thread += key >= middle ? 1 : 0; });
    of_thread = __reduce_add_sync(~0u, of_thread);
    if (threadIdx.x % kWarpSize == 0) atomicAdd(&memory.counts[probe], of_thread);
    __syncthreads();
    const int count = static_cast<int>(memory.counts[probe]);
    if (count < k) {
      high = middle - 1;
      continue;
    }
    low = middle;
    if (count <= k + k / 16) break;
  }
  return low;
}

__global__ void __launch_bounds__(kThresholdThreads)
    ThresholdKernel(const __grid_constant__ CallArgument call) {
  __shared__ ThresholdMemory memory;
  LetNextKernelStart();
  AwaitKernelBefore();
  RowCourse& course = call.memory.courses[blockIdx.x];
  if (course.way == Way::kAllowed) {
    if (threadIdx.x == 0) course.least = -INFINITY;
    return;
  }
  if (course.way != Way::kPlanes) return;
  const int tiles = call.planes.tiles;
  const int64_t first = int64_t{blockIdx.x} * tiles;
  const TileKeys keys(call.memory.tile_least + first, tiles);
  const uint32_t key = KeyOfRank(keys, course.k, memory);
  float least = key == 0 ? -INFINITY : semantics::ValueOfKey(key);
  if (course.decides == Decides::kLikely && least > -INFINITY) {
    // The threshold never falls as the maximum rises, which is at least that.
    least = semantics::MinPThreshold(course.min_p, least, course.filter_scale);
  }
  float best = -INFINITY;
  if (course.decides == Decides::kSoftmax) {
    __syncthreads();
    const TileKeys scores(call.memory.tile_least_scores + first, tiles);
    best = SurelyBelow(semantics::ValueOfKey(LargestKey(scores, memory)));
  }
  if (threadIdx.x == 0) {
    course.least = least;
    course.best = best;
  }
}

// --- list ---

constexpr int kListThreads = 256;

struct ListMemory {
  uint32_t first;
  uint32_t rest;
  uint32_t first_place;
  uint32_t rest_place;
};

// Of the tokens of a tile, which may matter, and which of those reach the threshold for certain.
struct TileTokens {
  uint32_t first = 0;
  uint32_t rest = 0;
};

__device__ TileTokens TokensOf(const CallArgument& call, const RowCourse& course, int row,
                               int tile) {
  const PlanesArgument& planes = call.planes;
  const int64_t at = int64_t{row} * planes.tiles * kTileRows + tile * kTileRows;
  const auto* scores = reinterpret_cast<const float4*>(call.memory.scores + at);
  const auto* widths = reinterpret_cast<const float4*>(call.memory.widths + at);
  const bool is_draw = course.decides == Decides::kSoftmax && course.way == Way::kPlanes;
  const bool has_first = course.decides == Decides::kFirst && course.least > -INFINITY;
  TileTokens tokens;
#pragma unroll
  for (int part = 0; part < kTileRows / 4; ++part) {
    const float4 s = scores[part];
    const float4 w = widths[part];
    const float score[4] = {s.x, s.y, s.z, s.w};
    const float width[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (score[e] == -INFINITY && width[e] == 0.0f) continue;  // masked
      const bool is_finite = width[e] < INFINITY;
      const float upper = is_finite ? score[e] + width[e] : INFINITY;
      const float lower = is_finite ? score[e] - width[e] : -INFINITY;
      bool may_matter = upper >= course.least;
      if (is_draw && !may_matter) {
        const int32_t id = tile * kTileRows + part * 4 + e;
        // The noise is at most 50.
        if (__fmaf_rn(upper, course.draw_scale, 50.0f) >= course.best) {
          const float g = semantics::Gumbel(
              semantics::NoiseBits(course.key, semantics::GumbelStream(course.key), id));
          may_matter = __fmaf_rn(upper, course.draw_scale, g) >= course.best;
        }
      }
      const uint32_t bit = 1u << (part * 4 + e);
      if (!may_matter) continue;
      if (has_first && lower >= course.least) {
        tokens.first |= bit;
      } else {
        tokens.rest |= bit;
      }
    }
  }
  return tokens;
}

__device__ void Write(ListedToken* to, uint32_t tokens, int row, int tile) {
  for (; tokens != 0; tokens &= tokens - 1) {
    *to++ = {row, tile * kTileRows + __ffs(static_cast<int>(tokens)) - 1};
  }
}

__global__ void __launch_bounds__(kListThreads)
    ListKernel(const __grid_constant__ CallArgument call) {
  __shared__ ListMemory memory;
  LetNextKernelStart();
  AwaitKernelBefore();
  const int row = static_cast<int>(blockIdx.y);
  RowCourse& course = call.memory.courses[row];
  const Way way = course.way;  // another block may leave the row to the dense head: no harm
  if (way != Way::kPlanes && way != Way::kAllowed) return;
  if (threadIdx.x == 0) memory.first = memory.rest = 0;
  __syncthreads();
  const int tile = static_cast<int>(blockIdx.x) * kListThreads + static_cast<int>(threadIdx.x);
  TileTokens tokens;
  if (tile < call.planes.tiles) {
    const int64_t at = int64_t{row} * call.planes.tiles + tile;
    const bool is_draw = course.decides == Decides::kSoftmax && way == Way::kPlanes;
    if (call.memory.tile_most[at] >= course.least ||
        (is_draw && call.memory.tile_most_scores[at] >= course.best)) {
      tokens = TokensOf(call, course, row, tile);
    }
  }
  const auto first = static_cast<uint32_t>(__popc(tokens.first));
  const auto rest = static_cast<uint32_t>(__popc(tokens.rest));
  const uint32_t first_before = first == 0 ? 0 : atomicAdd(&memory.first, first);
  const uint32_t rest_before = rest == 0 ? 0 : atomicAdd(&memory.rest, rest);
  __syncthreads();
  if (memory.first + memory.rest == 0) return;
  if (threadIdx.x == 0) {
    const auto count = static_cast<int32_t>(memory.first + memory.rest);
    if (atomicAdd(&course.listed, count) + count > call.memory.budget) {
      LeaveToDense(course, DenseReason::kSurvivors);
      memory.first_place = memory.rest_place = ~0u;
    } else {
      atomicAdd(&course.first, static_cast<int32_t>(memory.first));
      memory.first_place = atomicAdd(&call.memory.counters->first, memory.first);
      memory.rest_place = atomicAdd(&call.memory.counters->rest, memory.rest);
    }
  }
  __syncthreads();
  if (memory.first_place == ~0u) return;
  Write(call.memory.first + memory.first_place + first_before, tokens.first, row, tile);
  Write(call.memory.rest + memory.rest_place + rest_before, tokens.rest, row, tile);
}

// --- compute ---

constexpr int kComputeThreads = 128;

template <DType kWeight, bool kIsAligned>
__device__ float LogitOf(const CallArgument& call, int row, int id) {
  using Weight = typename ElementOf<kWeight>::Type;
  const WeightsArgument& head = call.head;
  const Weight* weight[1] = {static_cast<const Weight*>(head.weight) + id * head.stride};
  const float* hidden[1] = {call.memory.hidden + int64_t{row} * head.dim};
  float sum[1][1][kLanesOfThread] = {};
  AddLanes<kWeight, DType::kF32, kIsAligned, kIsAligned ? 8 : 1>(weight, hidden, head.dim, sum);
  const float dot = SumOfLanes(sum[0][0]);
  return head.bias == nullptr ? dot : dot + head.bias[id];
}

// KnownLeast while other warps compute: the threshold of the intervals until all first tokens are
// there.
__device__ float LeastSoFar(const RowCourse& course) {
  const int32_t first = course.first;
  const bool is_known =
      first > 0 && *static_cast<const volatile int32_t*>(&course.first_done) == first;
  if (!is_known) return course.least;
  __threadfence();
  return semantics::ValueOfKey(*static_cast<const volatile uint32_t*>(&course.first_key));
}

template <DType kWeight, bool kIsAligned>
__global__ void __launch_bounds__(kComputeThreads)
    ComputeKernel(const __grid_constant__ CallArgument call) {
  LetNextKernelStart();
  AwaitKernelBefore();
  const uint32_t first = call.memory.counters->first;
  const uint32_t all = first + call.memory.counters->rest;
  const uint32_t warps = gridDim.x * (kComputeThreads / kWarpSize);
  const bool is_teller = threadIdx.x % kWarpSize == 0;
#pragma unroll 1
  for (uint32_t i = (blockIdx.x * kComputeThreads + threadIdx.x) / kWarpSize; i < all; i += warps) {
    const ListedToken token = i < first ? call.memory.first[i] : call.memory.rest[i - first];
    RowCourse& course = call.memory.courses[token.row];
    if (course.way == Way::kDense) continue;
    const bool may_skip = i >= first && course.decides == Decides::kFirst;
    if (may_skip) {
      const int64_t at = int64_t{token.row} * call.planes.tiles * kTileRows + token.id;
      const float width = call.memory.widths[at];
      const float upper = width < INFINITY ? call.memory.scores[at] + width : INFINITY;
      float least = is_teller ? LeastSoFar(course) : 0.0f;
      least = __shfl_sync(~0u, least, 0);
      if (upper < least) continue;
    }
    const float x = LogitOf<kWeight, kIsAligned>(call, token.row, token.id);
    if (!is_teller) continue;
    call.memory.scores[int64_t{token.row} * call.planes.tiles * kTileRows + token.id] = x;
    atomicAdd(&course.computed, 1);
    if (i < first) {
      atomicMin(&course.first_key, semantics::OrderKey(x));
      __threadfence();
      atomicAdd(&course.first_done, 1);
    }
    if (semantics::IsNan(x)) {
      course.has_nan = 1;
    } else if (x == INFINITY) {
      course.has_pos_inf = 1;
    } else if (x > -INFINITY && !(may_skip && x < LeastSoFar(course))) {
      const int32_t place = atomicAdd(&course.survivors, 1);
      call.memory.survivors[int64_t{token.row} * call.memory.budget + place] = {x, token.id};
    }
  }
}

template <bool kIsAligned>
const void* ComputeFunction(DType dtype) {
  return dtype == DType::kF32
             ? reinterpret_cast<const void*>(ComputeKernel<DType::kF32, kIsAligned>)
         : dtype == DType::kBf16
             ? reinterpret_cast<const void*>(ComputeKernel<DType::kBf16, kIsAligned>)
             : reinterpret_cast<const void*>(ComputeKernel<DType::kF16, kIsAligned>);
}

}  // namespace

void LaunchBehind(const void* kernel, unsigned blocks_x, unsigned blocks_y, unsigned threads,
                  size_t shared_bytes, void* argument, void* stream) {
  if (shared_bytes > 48 * 1024) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks_x, blocks_y);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  cudaFuncAttributes attributes;
  // Code of before Hopper does not wait, so it must not start early.
  const bool waits = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
                     attributes.ptxVersion >= 90;
  config.numAttrs = waits ? 1 : 0;
  cudaLaunchKernelExC(&config, kernel, &argument);
  RequireLaunched("certified head");
}

void LaunchSurvivors(const CallArgument& call, void* stream) {
  LaunchEncode(call, stream);
  LaunchScore(call, stream);
  CallArgument argument = call;
  const auto rows = static_cast<unsigned>(call.memory.rows);
  LaunchBehind(reinterpret_cast<const void*>(ThresholdKernel), rows, 1, kThresholdThreads, 0,
               &argument, stream);
  LaunchBehind(reinterpret_cast<const void*>(ListKernel),
               static_cast<unsigned>((call.planes.tiles + kListThreads - 1) / kListThreads), rows,
               kListThreads, 0, &argument, stream);
  const bool is_aligned =
      call.head.stride % 4 == 0 && call.head.dim % 4 == 0 &&
      reinterpret_cast<uintptr_t>(call.head.weight) % (4 * SizeOf(call.dtype)) == 0;
  const auto blocks = static_cast<unsigned>(CurrentDeviceShape().processors * 8);
  LaunchBehind(is_aligned ? ComputeFunction<true>(call.dtype) : ComputeFunction<false>(call.dtype),
               blocks, 1, kComputeThreads, 0, &argument, stream);
}

void LaunchDense(const CallArgument& call, void* stream) {
  ProjectListed(call.head, call.dtype,
                {call.memory.hidden, call.memory.dense_rows, &call.memory.counters->dense,
                 call.memory.scores, int64_t{call.planes.tiles} * kTileRows, call.bitmask},
                stream);
}

}  // namespace sluice::cuda
