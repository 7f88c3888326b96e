// From intervals to the exact logits of the tokens that may matter, by a team of blocks a row.
//
// Each block finds the same threshold by itself, and has a stretch of the tiles: of the tokens
// there it computes first those that reach the threshold for certain. The blocks tell each other
// what that says, and each computes what may matter beside it in its stretch.
#include <algorithm>

#include "backend/cuda_check.h"
#include "head/device_course.cuh"
#include "head/dot_lanes.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"

namespace sluice::cuda {
namespace {

using Way = RowCourse::Way;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr float kMostNoise = 50.0f;
constexpr int kKeysOfThread = 32;  // kept in registers; those of larger heads are read again

// The tokens of a stretch are computed when there are that many, or no more tiles.
constexpr uint32_t kEnough = 1024;
constexpr uint32_t kOfTurn = kThreads * kTileRows;
// So many are not computed before it is known that the row's budget has room for them.
constexpr uint32_t kFew = 512;

// What exact logits say: order keys of the least, the largest and the best score for a draw.
struct Exact {
  uint32_t least;
  uint32_t most;
  uint32_t best;
};

struct SurvivorsMemory {
  alignas(16) uint32_t keys[kThreads];
  TeamMemory team;
  uint32_t most;
  uint32_t least;
  Exact exact;   // of this block
  Exact of_all;  // of the team
  uint32_t first;
  uint32_t count;
  uint32_t finite;
  uint32_t place;
  bool has_room;
  Survivor list[kEnough + kOfTurn];
};

// --- threshold ---

// The order keys of a row's tile ends; 0 is no end.
class TileKeys {
 public:
  __device__ TileKeys(const float* ends, int tiles) : ends_(ends), tiles_(tiles) {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int place = static_cast<int>(threadIdx.x) + i * kThreads;
      keys_[i] = place < tiles ? semantics::OrderKey(ends[place]) : 0;
    }
  }
  template <typename Visit>
  __device__ void ForEach(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) visit(keys_[i]);
#pragma unroll 1
    for (int place = static_cast<int>(threadIdx.x) + kKeysOfThread * kThreads; place < tiles_;
         place += kThreads) {
      visit(semantics::OrderKey(ends_[place]));
    }
  }

 private:
  const float* ends_;
  int tiles_;
  uint32_t keys_[kKeysOfThread];
};

__device__ uint32_t LargestKey(const TileKeys& keys, SurvivorsMemory& memory) {
  __syncthreads();
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
__device__ uint32_t KeyOfRank(const TileKeys& keys, int k, SurvivorsMemory& memory) {
  uint32_t high = LargestKey(keys, memory);
  if (k == 1) return high;
  if (k <= kThreads / 2) {
    // The k-th of the threads' largest keys: few threads have two of the first k.
    uint32_t mine = 0;
    keys.ForEach([&](uint32_t key) { mine = max(mine, key); });
    memory.keys[threadIdx.x] = mine;
    if (threadIdx.x == 0) memory.least = ~0u;
    __syncthreads();
    int rank = 0;
    const auto* const fours = reinterpret_cast<const uint4*>(memory.keys);
#pragma unroll 8
    for (int i = 0; i < kThreads / 4; ++i) {
      const uint4 four = fours[i];
      rank += (four.x > mine ? 1 : 0) + (four.y > mine ? 1 : 0) + (four.z > mine ? 1 : 0) +
              (four.w > mine ? 1 : 0);
    }
    if (rank < k) atomicMin(&memory.least, mine);
    __syncthreads();
    return memory.least;
  }
  uint32_t low = 0;
#pragma unroll 1
  while (low < high) {
    const uint32_t middle = high - (high - low) / 2;
    uint32_t of_thread = 0;
    keys.ForEach([&](uint32_t key) { of_thread += key >= middle ? 1 : 0; });
    const auto count = static_cast<int>(Team(memory.team).Block().SumOfBlock(uint64_t{of_thread}));
    if (count < k) {
      high = middle - 1;
      continue;
    }
    low = middle;
    if (count <= k + k / 16) break;
  }
  return low;
}

// --- tokens ---

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

template <DType kWeight, bool kIsAligned>
__device__ float LogitOf(const CallArgument& call, int row, int id) {
  using Weight = typename ElementOf<kWeight>::Type;
  const WeightsArgument& head = call.head;
  const Weight* weight[1] = {static_cast<const Weight*>(head.weight) + id * head.stride};
  const float* hidden[1] = {call.memory.hidden + int64_t{row} * head.dim};
  float sum[1][1][kLanesOfThread] = {};
  AddLanes<kWeight, DType::kF32, kIsAligned, kIsAligned ? 16 : 1>(weight, hidden, head.dim, sum);
  const float dot = SumOfLanes(sum[0][0]);
  return head.bias == nullptr ? dot : dot + head.bias[id];
}

// What is known of a row when its tokens are sought.
struct Threshold {
  float least = -INFINITY;
  float best = INFINITY;  // of scores of a draw; none
};

template <DType kWeight, bool kIsAligned>
class RowTokens {
 public:
  __device__ RowTokens(const CallArgument& call, const Team& team, SurvivorsMemory& memory, int row)
      : call_(call), course_(call.memory.courses[row]), memory_(memory), row_(row) {
    const int of_block = (call.planes.tiles + team.blocks() - 1) / team.blocks();
    begin_ = team.rank() * of_block;
    end_ = min(begin_ + of_block, call.planes.tiles);
  }

  // Computes the tokens of this block's tiles, tokens_of(tile) as bits. kIsFirst: keeps what their
  // logits say, in the memory.
  template <bool kIsFirst, typename TokensOfTile>
  __device__ void Compute(TokensOfTile tokens_of) const {
    if (threadIdx.x == 0) memory_.count = 0;
    __syncthreads();
#pragma unroll 1
    for (int base = begin_; base < end_; base += kThreads) {
      const int tile = base + static_cast<int>(threadIdx.x);
      uint32_t tokens = tile < end_ ? tokens_of(tile) : 0;
      if (tokens != 0) {
        uint32_t place = atomicAdd(&memory_.count, static_cast<uint32_t>(__popc(tokens)));
        for (; tokens != 0; tokens &= tokens - 1) {
          memory_.list[place++].id = tile * kTileRows + __ffs(static_cast<int>(tokens)) - 1;
        }
      }
      __syncthreads();
      const uint32_t count = memory_.count;
      if (count <= kEnough && (base + kThreads < end_ || count == 0)) {
        __syncthreads();
        continue;
      }
      ComputeListed<kIsFirst>(count);
    }
  }

 private:
  template <bool kIsFirst>
  __device__ void ComputeListed(uint32_t count) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    if (threadIdx.x == 0) {
      const auto listed = static_cast<int32_t>(count);
      memory_.has_room = atomicAdd(&course_.listed, listed) + listed <= call_.memory.budget;
      memory_.finite = 0;
      if (kIsFirst) memory_.first += count;
    }
    if (count > kFew) {
      __syncthreads();
      if (!memory_.has_room) return Clear();
    }
#pragma unroll 1
    for (uint32_t i = static_cast<uint32_t>(warp); i < count; i += kWarps) {
      const float x = LogitOf<kWeight, kIsAligned>(call_, row_, memory_.list[i].id);
      if (threadIdx.x % kWarpSize == 0) memory_.list[i].x = x;
    }
    __syncthreads();
    if (memory_.has_room) Keep<kIsFirst>(count);
    Clear();
  }

  template <bool kIsFirst>
  __device__ void Keep(uint32_t count) const {
    const int64_t row_at = int64_t{row_} * call_.planes.tiles * kTileRows;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      const auto [x, id] = memory_.list[i];
      call_.memory.scores[row_at + id] = x;
      call_.memory.widths[row_at + id] = 0.0f;
      if constexpr (kIsFirst) {  // whose intervals have ends, so they are finite
        atomicMin(&memory_.exact.least, semantics::OrderKey(x));
        atomicMax(&memory_.exact.most, semantics::OrderKey(x));
        if (course_.decides == Decides::kSoftmax) {
          const float score = __fmaf_rn(x, course_.draw_scale, NoiseOf(course_, id));
          atomicMax(&memory_.exact.best, semantics::OrderKey(score));
        }
      }
      if (semantics::IsNan(x)) {
        course_.has_nan = 1;
      } else if (x == INFINITY) {
        course_.has_pos_inf = 1;
      } else if (x > -INFINITY) {
        atomicAdd(&memory_.finite, 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto finite = static_cast<int32_t>(memory_.finite);
      memory_.place = static_cast<uint32_t>(atomicAdd(&course_.survivors, finite));
    }
    __syncthreads();
    Survivor* const to = call_.memory.survivors + int64_t{row_} * call_.memory.budget;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      const Survivor survivor = memory_.list[i];
      if (fabsf(survivor.x) < INFINITY) to[atomicAdd(&memory_.place, 1u)] = survivor;
    }
  }

  __device__ void Clear() const {
    __syncthreads();
    if (threadIdx.x == 0) memory_.count = 0;
    __syncthreads();
  }

  const CallArgument& call_;
  RowCourse& course_;
  SurvivorsMemory& memory_;
  int row_;
  int begin_;
  int end_;
};

// What the first tokens reach for certain. In all blocks the same.
__device__ Threshold SureThreshold(const CallArgument& call, const RowCourse& course, int row,
                                   SurvivorsMemory& memory) {
  const int64_t at = int64_t{row} * call.planes.tiles;
  const uint32_t key =
      KeyOfRank(TileKeys(call.memory.tile_least + at, call.planes.tiles), course.k, memory);
  Threshold sure;
  sure.least = key == 0 ? -INFINITY : semantics::ValueOfKey(key);
  if (course.decides == Decides::kSoftmax) {
    const TileKeys scores(call.memory.tile_least_scores + at, call.planes.tiles);
    sure.best = semantics::ValueOfKey(LargestKey(scores, memory));
  }
  return sure;
}

// What the exact logits of the first tokens say that the others must reach.
__device__ Threshold NearThreshold(const RowCourse& course, const Exact& exact) {
  const float most = semantics::ValueOfKey(exact.most);
  if (course.decides == Decides::kFirst) return {semantics::ValueOfKey(exact.least)};
  if (course.decides == Decides::kLikely) {
    // The threshold never falls as the maximum rises, which is at least that.
    return {semantics::MinPThreshold(course.min_p, most, course.filter_scale)};
  }
  return {most, SurelyBelow(semantics::ValueOfKey(exact.best))};
}

// Of the blocks of the team, behind its Sync.
__device__ void Gather(const Team& team, SurvivorsMemory& memory) {
  if (threadIdx.x < kWarpSize) {
    const bool is_there = team.lane() < team.blocks();
    const Exact exact = is_there ? *team.Of(team.lane(), &memory.exact) : Exact{~0u, 0, 0};
    const uint32_t first = is_there ? *team.Of(team.lane(), &memory.first) : 0;
    const Exact of_all = {__reduce_min_sync(~0u, exact.least), __reduce_max_sync(~0u, exact.most),
                          __reduce_max_sync(~0u, exact.best)};
    const uint32_t firsts = __reduce_add_sync(~0u, first);
    if (threadIdx.x == 0) {
      memory.of_all = of_all;
      memory.place = firsts;
    }
  }
  __syncthreads();
}

template <DType kWeight, bool kIsAligned>
__global__ void __launch_bounds__(kThreads, 1)
    SurvivorsKernel(const __grid_constant__ CallArgument call) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<SurvivorsMemory*>(shared);
  LetNextKernelStart();
  AwaitKernelBefore();
  const Team team(memory.team);
  const int row = static_cast<int>(blockIdx.x) / team.blocks();
  RowCourse& course = call.memory.courses[row];
  const Way way = course.way;
  if (way != Way::kPlanes && way != Way::kAllowed) return;
  if (threadIdx.x == 0) {
    memory.exact = {~0u, 0, 0};
    memory.first = 0;
  }
  const RowTokens<kWeight, kIsAligned> tokens(call, team, memory, row);
  const float* const ends = call.memory.tile_least + int64_t{row} * call.planes.tiles;
  const float* const tops = call.memory.tile_most + int64_t{row} * call.planes.tiles;
  const float* const end_scores = call.memory.tile_least_scores + int64_t{row} * call.planes.tiles;
  const float* const top_scores = call.memory.tile_most_scores + int64_t{row} * call.planes.tiles;
  const bool is_draw = way == Way::kPlanes && course.decides == Decides::kSoftmax;
  Threshold near;
  bool has_first = false;
  if (way == Way::kPlanes) {
    const Threshold sure = SureThreshold(call, course, row, memory);
    has_first = sure.least > -INFINITY;  // else fewer tokens than are wanted have an end
    if (has_first) {
      tokens.template Compute<true>([&](int tile) {
        if (!(ends[tile] >= sure.least) && !(is_draw && end_scores[tile] >= sure.best)) return 0u;
        return TokensOf(call, row, tile, [&](const Ends& of, int32_t id) {
          return of.lower >= sure.least || (is_draw && __fmaf_rn(of.lower, course.draw_scale,
                                                                 NoiseOf(course, id)) >= sure.best);
        });
      });
      team.Sync();
      Gather(team, memory);
      team.ArriveStarted();  // and has read what the others have in their memory
      if (memory.place > 0) near = NearThreshold(course, memory.of_all);
      if (team.IsFirstThread()) {
        course.first = static_cast<int32_t>(memory.place);
        course.least_first = memory.of_all.least;
      }
      __syncthreads();
    }
  }
  const bool has_best = is_draw && near.best < INFINITY;
  tokens.template Compute<false>([&](int tile) {
    if (!(tops[tile] >= near.least) && !(has_best && top_scores[tile] >= near.best)) return 0u;
    return TokensOf(call, row, tile, [&](const Ends& of, int32_t id) {
      return of.upper >= near.least ||
             (has_best && __fmaf_rn(of.upper, course.draw_scale, kMostNoise) >= near.best &&
              __fmaf_rn(of.upper, course.draw_scale, NoiseOf(course, id)) >= near.best);
    });
  });
  if (has_first) team.AwaitStarted();
}

template <bool kIsAligned>
const void* KernelOf(DType dtype) {
  return dtype == DType::kF32
             ? reinterpret_cast<const void*>(SurvivorsKernel<DType::kF32, kIsAligned>)
         : dtype == DType::kBf16
             ? reinterpret_cast<const void*>(SurvivorsKernel<DType::kBf16, kIsAligned>)
             : reinterpret_cast<const void*>(SurvivorsKernel<DType::kF16, kIsAligned>);
}

}  // namespace

void LaunchBehind(const void* kernel, const LaunchShape& shape, void* argument, void* stream) {
  constexpr const char* kWhat = "certified head";
  if (shape.shared_bytes > 48 * 1024) {
    RequireCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.shared_bytes)),
                kWhat);
  }
  cudaFuncAttributes attributes;
  RequireCuda(cudaFuncGetAttributes(&attributes, kernel), kWhat);
  // Code of before Hopper does not wait, so it must not start early, and knows no clusters.
  const bool is_of_hopper = attributes.ptxVersion >= 90;
  const unsigned cluster = is_of_hopper ? shape.cluster : 1;
  if (cluster > kMostBlocks) {
    RequireCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                kWhat);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.blocks * cluster, shape.blocks_y);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute of_launch[2];
  of_launch[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  of_launch[0].val.programmaticStreamSerializationAllowed = 1;
  of_launch[1].id = cudaLaunchAttributeClusterDimension;
  of_launch[1].val.clusterDim = {cluster, 1, 1};
  config.attrs = of_launch;
  config.numAttrs = is_of_hopper ? (cluster > 1 ? 2 : 1) : 0;
  RequireCuda(cudaLaunchKernelExC(&config, kernel, &argument), kWhat);
}

void LaunchSurvivors(const CallArgument& call, void* stream) {
  LaunchEncode(call, stream);
  LaunchScore(call, stream);
  const int rows = call.memory.rows;
  const bool is_aligned =
      call.head.stride % 4 == 0 && call.head.dim % 4 == 0 &&
      reinterpret_cast<uintptr_t>(call.head.weight) % (4 * SizeOf(call.dtype)) == 0;
  CallArgument argument = call;
  // A block takes a processor, as near as it goes.
  const unsigned blocks = rows <= 8 ? 16 : rows <= 16 ? 8 : rows <= 32 ? 4 : rows <= 64 ? 2 : 1;
  LaunchBehind(is_aligned ? KernelOf<true>(call.dtype) : KernelOf<false>(call.dtype),
               {.blocks = static_cast<unsigned>(rows),
                .threads = kThreads,
                .shared_bytes = sizeof(SurvivorsMemory),
                .cluster = blocks},
               &argument, stream);
}

void LaunchDense(const CallArgument& call, void* stream) {
  ProjectListed(call.head, call.dtype,
                {call.memory.hidden, call.memory.dense_rows, &call.memory.counters->dense,
                 call.memory.scores, int64_t{call.planes.tiles} * kTileRows, call.bitmask},
                stream);
}

}  // namespace sluice::cuda
