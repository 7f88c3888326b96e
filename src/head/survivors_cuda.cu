// From intervals to the exact logits of the tokens that may matter.
#include "backend/cuda_check.h"
#include "head/device_course.cuh"
#include "head/dot_lanes.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"

namespace sluice::cuda {
namespace {

using Way = RowCourse::Way;

constexpr float kMostNoise = 50.0f;

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

// A token's interval; of one that was computed, or is masked, none.
struct Ends {
  bool is_open;
  float lower;
  float upper;
};

__device__ Ends EndsOf(float score, float width) {
  const bool is_finite = width < INFINITY;
  return {width != 0.0f, is_finite ? score - width : -INFINITY,
          is_finite ? score + width : INFINITY};
}

__device__ float NoiseOf(const RowCourse& course, int32_t id) {
  return semantics::Gumbel(
      semantics::NoiseBits(course.key, semantics::GumbelStream(course.key), id));
}

// The tokens of a tile for which is_wanted(ends, id) holds, as bits.
template <typename IsWanted>
__device__ uint32_t TokensOf(const CallArgument& call, int row, int tile, IsWanted is_wanted) {
  const int64_t at = (int64_t{row} * call.planes.tiles + tile) * kTileRows;
  const auto* scores = reinterpret_cast<const float4*>(call.memory.scores + at);
  const auto* widths = reinterpret_cast<const float4*>(call.memory.widths + at);
  uint32_t tokens = 0;
#pragma unroll
  for (int part = 0; part < kTileRows / 4; ++part) {
    const float4 s = scores[part];
    const float4 w = widths[part];
    const float score[4] = {s.x, s.y, s.z, s.w};
    const float width[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Ends ends = EndsOf(score[e], width[e]);
      const int place = part * 4 + e;
      if (ends.is_open && is_wanted(ends, tile * kTileRows + place)) tokens |= 1u << place;
    }
  }
  return tokens;
}

__device__ void Write(ListedToken* to, uint32_t tokens, int row, int tile) {
  for (; tokens != 0; tokens &= tokens - 1) {
    *to++ = {row, tile * kTileRows + __ffs(static_cast<int>(tokens)) - 1};
  }
}

// Room for the tokens of a row in a list of the call; ~0: the row has more than are worth it, and
// is left to the dense head. By one thread.
__device__ uint32_t TakeRoom(const CallArgument& call, RowCourse& course, uint32_t count,
                             uint32_t* of_call) {
  const auto of_row = static_cast<int32_t>(count);
  if (atomicAdd(&course.listed, of_row) + of_row > call.memory.budget) {
    LeaveToDense(course, DenseReason::kSurvivors);
    return ~0u;
  }
  return atomicAdd(of_call, count);
}

struct ListMemory {
  uint32_t count;
  uint32_t place;
};

__global__ void __launch_bounds__(kThresholdThreads)
    ThresholdKernel(const __grid_constant__ CallArgument call) {
  __shared__ ThresholdMemory memory;
  __shared__ ListMemory list;
  LetNextKernelStart();
  AwaitKernelBefore();
  const int row = static_cast<int>(blockIdx.x);
  RowCourse& course = call.memory.courses[row];
  if (course.way != Way::kPlanes) return;
  const int tiles = call.planes.tiles;
  const float* const ends_of_tiles = call.memory.tile_least + int64_t{row} * tiles;
  const float* const scores_of_tiles = call.memory.tile_least_scores + int64_t{row} * tiles;
  const uint32_t key = KeyOfRank(TileKeys(ends_of_tiles, tiles), course.k, memory);
  const float least = key == 0 ? -INFINITY : semantics::ValueOfKey(key);
  const bool is_draw = course.decides == Decides::kSoftmax;
  float best = INFINITY;
  if (is_draw) {
    __syncthreads();
    best = semantics::ValueOfKey(LargestKey(TileKeys(scores_of_tiles, tiles), memory));
  }
  if (threadIdx.x == 0) list.count = 0;
  __syncthreads();
  if (least == -INFINITY) return;  // fewer tokens than are wanted have an end
  auto tokens_of = [&](int tile) {
    const bool has_any = ends_of_tiles[tile] >= least || (is_draw && scores_of_tiles[tile] >= best);
    if (!has_any) return 0u;
    return TokensOf(call, row, tile, [&](const Ends& ends, int32_t id) {
      return ends.lower >= least ||
             (is_draw && __fmaf_rn(ends.lower, course.draw_scale, NoiseOf(course, id)) >= best);
    });
  };
  // Twice: how many there are, and where they go.
  uint32_t mine = 0;
  for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kThresholdThreads) {
    mine += static_cast<uint32_t>(__popc(tokens_of(tile)));
  }
  uint32_t before = mine == 0 ? 0 : atomicAdd(&list.count, mine);
  __syncthreads();
  if (threadIdx.x == 0) {
    course.first = static_cast<int32_t>(list.count);
    list.place = TakeRoom(call, course, list.count, &call.memory.counters->first);
  }
  __syncthreads();
  if (list.place == ~0u || mine == 0) return;
  for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kThresholdThreads) {
    const uint32_t tokens = tokens_of(tile);
    Write(call.memory.first + list.place + before, tokens, row, tile);
    before += static_cast<uint32_t>(__popc(tokens));
  }
}

// --- list ---

constexpr int kListThreads = 256;

__global__ void __launch_bounds__(kListThreads)
    ListKernel(const __grid_constant__ CallArgument call) {
  __shared__ ListMemory list;
  LetNextKernelStart();
  AwaitKernelBefore();
  const int row = static_cast<int>(blockIdx.y);
  RowCourse& course = call.memory.courses[row];
  const Way way = course.way;  // another block may leave the row to the dense head: no harm
  if (way != Way::kPlanes && way != Way::kAllowed) return;
  if (threadIdx.x == 0) list.count = 0;
  __syncthreads();
  float least = -INFINITY;
  float best = INFINITY;
  if (way == Way::kPlanes && course.first > 0) {
    const float most = semantics::ValueOfKey(course.most_first);
    if (course.decides == Decides::kFirst) {
      least = LeastOfFirstK(course);
    } else if (course.decides == Decides::kLikely) {
      // The threshold never falls as the maximum rises, which is at least that.
      least = semantics::MinPThreshold(course.min_p, most, course.filter_scale);
    } else {
      least = most;
      best = SurelyBelow(semantics::ValueOfKey(course.best_first));
    }
  }
  const bool is_draw = best < INFINITY;
  const int tile = static_cast<int>(blockIdx.x) * kListThreads + static_cast<int>(threadIdx.x);
  uint32_t tokens = 0;
  if (tile < call.planes.tiles) {
    const int64_t at = int64_t{row} * call.planes.tiles + tile;
    if (call.memory.tile_most[at] >= least ||
        (is_draw && call.memory.tile_most_scores[at] >= best)) {
      tokens = TokensOf(call, row, tile, [&](const Ends& ends, int32_t id) {
        return ends.upper >= least ||
               (is_draw && __fmaf_rn(ends.upper, course.draw_scale, kMostNoise) >= best &&
                __fmaf_rn(ends.upper, course.draw_scale, NoiseOf(course, id)) >= best);
      });
    }
  }
  const auto mine = static_cast<uint32_t>(__popc(tokens));
  const uint32_t before = mine == 0 ? 0 : atomicAdd(&list.count, mine);
  __syncthreads();
  if (list.count == 0) return;
  if (threadIdx.x == 0) {
    list.place = TakeRoom(call, course, list.count, &call.memory.counters->rest);
  }
  __syncthreads();
  if (list.place == ~0u) return;
  Write(call.memory.rest + list.place + before, tokens, row, tile);
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

// kIsFirst: of the tokens that say more of the others.
template <DType kWeight, bool kIsAligned, bool kIsFirst>
__global__ void __launch_bounds__(kComputeThreads)
    ComputeKernel(const __grid_constant__ CallArgument call) {
  LetNextKernelStart();
  AwaitKernelBefore();
  const CallMemory& memory = call.memory;
  const uint32_t count = kIsFirst ? memory.counters->first : memory.counters->rest;
  const ListedToken* const tokens = kIsFirst ? memory.first : memory.rest;
  const uint32_t warps = gridDim.x * (kComputeThreads / kWarpSize);
#pragma unroll 1
  for (uint32_t i = (blockIdx.x * kComputeThreads + threadIdx.x) / kWarpSize; i < count;
       i += warps) {
    const ListedToken token = tokens[i];
    RowCourse& course = memory.courses[token.row];
    if (course.way == Way::kDense) continue;
    const float x = LogitOf<kWeight, kIsAligned>(call, token.row, token.id);
    if (threadIdx.x % kWarpSize != 0) continue;
    const int64_t at = int64_t{token.row} * call.planes.tiles * kTileRows + token.id;
    memory.scores[at] = x;
    memory.widths[at] = 0.0f;
    if constexpr (kIsFirst) {  // whose intervals have ends, so they are finite
      atomicMin(&course.least_first, semantics::OrderKey(x));
      atomicMax(&course.most_first, semantics::OrderKey(x));
      if (course.decides == Decides::kSoftmax) {
        const float score = __fmaf_rn(x, course.draw_scale, NoiseOf(course, token.id));
        atomicMax(&course.best_first, semantics::OrderKey(score));
      }
    }
    if (semantics::IsNan(x)) {
      course.has_nan = 1;
    } else if (x == INFINITY) {
      course.has_pos_inf = 1;
    } else if (x > -INFINITY) {
      const int32_t place = atomicAdd(&course.survivors, 1);
      memory.survivors[int64_t{token.row} * memory.budget + place] = {x, token.id};
    }
  }
}

template <bool kIsAligned, bool kIsFirst>
const void* ComputeFunction(DType dtype) {
  return dtype == DType::kF32
             ? reinterpret_cast<const void*>(ComputeKernel<DType::kF32, kIsAligned, kIsFirst>)
         : dtype == DType::kBf16
             ? reinterpret_cast<const void*>(ComputeKernel<DType::kBf16, kIsAligned, kIsFirst>)
             : reinterpret_cast<const void*>(ComputeKernel<DType::kF16, kIsAligned, kIsFirst>);
}

template <bool kIsFirst>
void LaunchCompute(const CallArgument& call, void* stream) {
  const bool is_aligned =
      call.head.stride % 4 == 0 && call.head.dim % 4 == 0 &&
      reinterpret_cast<uintptr_t>(call.head.weight) % (4 * SizeOf(call.dtype)) == 0;
  const void* kernel = is_aligned ? ComputeFunction<true, kIsFirst>(call.dtype)
                                  : ComputeFunction<false, kIsFirst>(call.dtype);
  CallArgument argument = call;
  LaunchBehind(kernel, static_cast<unsigned>(CurrentDeviceShape().processors * 8), 1,
               kComputeThreads, 0, &argument, stream);
}

}  // namespace

void LaunchBehind(const void* kernel, unsigned blocks_x, unsigned blocks_y, unsigned threads,
                  size_t shared_bytes, void* argument, void* stream) {
  constexpr const char* kWhat = "certified head";
  if (shared_bytes > 48 * 1024) {
    RequireCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)),
                kWhat);
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
  RequireCuda(cudaFuncGetAttributes(&attributes, kernel), kWhat);
  // Code of before Hopper does not wait, so it must not start early.
  config.numAttrs = attributes.ptxVersion >= 90 ? 1 : 0;
  RequireCuda(cudaLaunchKernelExC(&config, kernel, &argument), kWhat);
}

void LaunchSurvivors(const CallArgument& call, void* stream) {
  LaunchEncode(call, stream);
  LaunchScore(call, stream);
  CallArgument argument = call;
  const auto rows = static_cast<unsigned>(call.memory.rows);
  LaunchBehind(reinterpret_cast<const void*>(ThresholdKernel), rows, 1, kThresholdThreads, 0,
               &argument, stream);
  LaunchCompute<true>(call, stream);
  LaunchBehind(reinterpret_cast<const void*>(ListKernel),
               static_cast<unsigned>((call.planes.tiles + kListThreads - 1) / kListThreads), rows,
               kListThreads, 0, &argument, stream);
  LaunchCompute<false>(call, stream);
}

void LaunchDense(const CallArgument& call, void* stream) {
  ProjectListed(call.head, call.dtype,
                {call.memory.hidden, call.memory.dense_rows, &call.memory.counters->dense,
                 call.memory.scores, int64_t{call.planes.tiles} * kTileRows, call.bitmask},
                stream);
}

}  // namespace sluice::cuda
