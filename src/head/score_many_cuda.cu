// The intervals of all rows of the head for 32 hidden states at a time, by Hopper's products of
// warpgroups: 64 rows of the head from registers times 64 columns, the bytes of the hidden states,
// from shared memory. A warp has a tile. What it needs of a group is copied ahead by the engine for
// bulk copies, codes for the warp and the hidden states for the block, whose warps may be a few
// groups apart.
#include <algorithm>

#include "backend/ptx.cuh"
#include "head/score_ends.cuh"

namespace sluice::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_WARPGROUPS 1
#else
#define SLUICE_WARPGROUPS 0
#endif

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kQuads = kQuadsTogether;
constexpr int kColumns = kQuads * 2 * kStatesOfQuad;
constexpr int kStages = 8;
constexpr int kAhead = 5;            // groups; warps may be kStages - kAhead apart
constexpr int kSums = kColumns / 2;  // of a thread

struct Stage {
  QuadGroup quads[kQuads];
  TileGroup tiles[kWarps];
};
struct ManyMemory {
  Stage stages[kStages];
  uint64_t full[kStages];   // barriers: the copies have come
  uint64_t empty[kStages];  // and all warps have done with them
};

// Code for other devices has no such products, and says so by its number of threads.
constexpr int kMostThreads = SLUICE_WARPGROUPS == 1 ? kThreads : kWarpSize;

#if SLUICE_WARPGROUPS
__device__ __forceinline__ uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// arrivals: that a phase of the barrier waits for beside the bytes.
__device__ __forceinline__ void StartBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;"
               :
               : "r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(SharedAddress(barrier))
               : "memory");
}
// From global memory, sixteens of bytes, which count at the barrier when they are there.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(SharedAddress(to)), "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}

// Where a product of 32 elements finds its columns: in sixteens of elements 128 bytes apart, and in
// eights of columns a QuadGroup apart.
__device__ uint64_t ColumnsAt(const void* at) {
  constexpr uint64_t kSixteens = 128 >> 4;
  constexpr uint64_t kEights = sizeof(QuadGroup) >> 4;
  const uint64_t address = __cvta_generic_to_shared(at);
  return (address & 0x3ffff) >> 4 | kSixteens << 16 | kEights << 32;
}

__device__ __forceinline__ void StartProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void EndProducts(int32_t (&sum)[kSums]) {
  asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int32_t& of_column : sum) asm volatile("" : "+r"(of_column)::"memory");
}
// is_more: on top of the sums.
__device__ __forceinline__ void AddProducts(int32_t (&d)[kSums], const uint32_t (&a)[4],
                                            uint64_t columns, int is_more) {
  asm volatile(
      "{\n\t"
      ".reg .pred is_more;\n\t"
      "setp.ne.b32 is_more, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, is_more;\n\t"
      "}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]),
        "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]),
        "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(columns), "r"(is_more)
      : "memory");
}
#endif

__global__ void __launch_bounds__(kMostThreads, 1)
    ManyKernel(const __grid_constant__ CallArgument call) {
#if SLUICE_WARPGROUPS
  extern __shared__ __align__(128) unsigned char shared[];
  ManyMemory& memory = *reinterpret_cast<ManyMemory*>(shared);
  LetNextKernelStart();
  const PlanesArgument& planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int groups = planes.groups;
  const int first_quad = static_cast<int>(blockIdx.y) * kQuads;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      StartBarrier(&memory.full[s], 1);
      StartBarrier(&memory.empty[s], kWarps);
    }
  }
  __syncthreads();
  // Sixteen tiles after sixteen tiles; behind the last, the last again.
  const int first_of_block = static_cast<int>(blockIdx.x) * kWarps;
  const int of_turn = static_cast<int>(gridDim.x) * kWarps;
  const int turns = (planes.tiles - first_of_block + of_turn - 1) / of_turn;
  const uint32_t steps = static_cast<uint32_t>(max(turns, 0) * groups);
  uint32_t ahead = 0;  // steps whose copies are on their way
  int turn_ahead = 0, group_ahead = 0;
  auto copy_codes = [&](uint32_t step, int turn, int group) {
    TileGroup& to = memory.stages[step % kStages].tiles[warp];
    uint64_t* const full = &memory.full[step % kStages];
    const int tile = min(first_of_block + turn * of_turn + warp, planes.tiles - 1);
    CopyBulk(&to, planes.tile_groups + int64_t{tile} * groups + group, sizeof to, full);
  };
  auto copy_states = [&](uint32_t step, int group) {
    Stage& to = memory.stages[step % kStages];
    uint64_t* const full = &memory.full[step % kStages];
    if (step >= kStages) {
      AwaitBarrier(&memory.empty[step % kStages], static_cast<int>((step / kStages - 1) % 2));
    }
    ExpectBytes(full, sizeof(Stage));
    CopyBulk(to.quads, call.memory.quads + PlaceOfQuad(first_quad, group, groups), sizeof to.quads,
             full);
  };
  auto step_ahead = [&] {
    ++ahead;
    if (++group_ahead < groups) return;
    group_ahead = 0;
    ++turn_ahead;
  };
  if (lane == 0) {
    while (ahead < kAhead && ahead < steps) {
      copy_codes(ahead, turn_ahead, group_ahead);
      step_ahead();
    }
  }
  AwaitKernelBefore();
  if (threadIdx.x == 0) {
    for (uint32_t step = 0; step < ahead; ++step) {
      copy_states(step, static_cast<int>(step % static_cast<uint32_t>(groups)));
    }
  }

  RowScore rows[kQuads][2];
  int32_t sum[kSums] = {};
  int turn = 0, group = 0;
#pragma unroll 1
  for (uint32_t step = 0; step < steps; ++step) {
    if (lane == 0 && ahead < steps) {
      copy_codes(ahead, turn_ahead, group_ahead);
      if (warp == 0) copy_states(ahead, group_ahead);
      step_ahead();
    }
    __syncwarp();
    AwaitBarrier(&memory.full[step % kStages], static_cast<int>(step / kStages % 2));
    const Stage& stage = memory.stages[step % kStages];
    const TileGroup& staged = stage.tiles[warp];
    const CodeOperands codes(staged.codes[0][lane], staged.codes[1][lane], staged.scales[lane / 4]);
    StartProducts();
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      AddProducts(sum, codes.of_step[part], ColumnsAt(stage.quads[0].elements[2 * part]), part);
    }
    EndProducts(sum);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float4 packed = reinterpret_cast<const float4*>(stage.quads[q].constants)[lane % 4];
      const QuadGroup::Constants state = {packed.x, packed.y, packed.z, packed.w};
      rows[q][0].Add(sum[4 * q], sum[4 * q + 1], codes.scale[0], state);
      rows[q][1].Add(sum[4 * q + 2], sum[4 * q + 3], codes.scale[1], state);
    }
    __syncwarp();
    if (lane == 0) Arrive(&memory.empty[step % kStages]);
    if (++group < groups) continue;
    const int tile = first_of_block + turn * of_turn + warp;
    group = 0;
    ++turn;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (tile < planes.tiles) KeepTile(call, first_quad + q, tile, rows[q]);
      rows[q][0] = rows[q][1] = RowScore{};
    }
  }
#endif
}

}  // namespace

bool CanScoreMany() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(ManyKernel)) ==
             cudaSuccess &&
         attributes.maxThreadsPerBlock >= kThreads &&
         sizeof(ManyMemory) <= CurrentDeviceShape().most_shared_bytes;
}

void LaunchScoreMany(const CallArgument& call, void* stream) {
  const DeviceShape device = CurrentDeviceShape();
  const int quads = (call.memory.rows + kStatesOfQuad - 1) / kStatesOfQuad;
  const int blocks = (call.planes.tiles + kWarps - 1) / kWarps;
  CallArgument argument = call;
  LaunchBehind(reinterpret_cast<const void*>(ManyKernel),
               {.blocks = static_cast<unsigned>(std::min<int64_t>(blocks, device.processors)),
                .blocks_y = static_cast<unsigned>((quads + kQuads - 1) / kQuads),
                .threads = kThreads,
                .shared_bytes = sizeof(ManyMemory)},
               &argument, stream);
}

}  // namespace sluice::cuda
