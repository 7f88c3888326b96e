// The intervals of all rows of the head for 32 hidden states at a time, by Hopper's products of
// warpgroups: 64 rows of the head from registers times 64 columns, the bytes of the hidden states,
// from shared memory. A warp has a tile; the tiles of a block go from group to group together.
#include <algorithm>

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
constexpr int kQuads = 8;
constexpr int kColumns = kQuads * 2 * kStatesOfQuad;
constexpr int kStages = 8;
constexpr int kSums = kColumns / 2;  // of a thread

struct Stage {
  QuadGroup quads[kQuads];
  StagedGroup tiles[kWarps];
};
constexpr int kPiecesOfQuad = sizeof(QuadGroup) / sizeof(uint4);

// Code for other devices has no such products, and says so by its number of threads.
constexpr int kMostThreads = SLUICE_WARPGROUPS == 1 ? kThreads : kWarpSize;

#if SLUICE_WARPGROUPS
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
  extern __shared__ __align__(16) unsigned char shared[];
  LetNextKernelStart();
  const PlanesArgument& planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int first_quad = static_cast<int>(blockIdx.y) * kQuads;
  const int groups = planes.groups;
  Stage* const stages = reinterpret_cast<Stage*>(shared);
  // Sixteen tiles after sixteen tiles; behind the last, the last again.
  const int of_block = static_cast<int>(gridDim.x) * kWarps;
  auto tile_of = [&](int turn) {
    return turn * of_block + static_cast<int>(blockIdx.x) * kWarps + warp;
  };
  auto has_turn = [&](int turn) { return tile_of(turn) - warp < planes.tiles; };
  struct Place {
    int turn = 0;
    int group = 0;
    int stage = 0;
    __device__ void Step(int of_turn) {
      stage = (stage + 1) % kStages;
      if (++group < of_turn) return;
      group = 0;
      ++turn;
    }
  };
  Place ahead_codes, ahead_states;
  auto stage_codes = [&] {
    if (has_turn(ahead_codes.turn)) {
      const int64_t tile = min(tile_of(ahead_codes.turn), planes.tiles - 1);
      stages[ahead_codes.stage].tiles[warp].CopyAhead(planes, tile * groups + ahead_codes.group);
    }
    ahead_codes.Step(groups);
  };
  auto stage_states = [&] {
    if (has_turn(ahead_states.turn)) {
      auto* const to = reinterpret_cast<uint4*>(stages[ahead_states.stage].quads);
      for (int i = static_cast<int>(threadIdx.x); i < kQuads * kPiecesOfQuad; i += kThreads) {
        const QuadGroup* const quad = call.memory.quads +
                                      int64_t{first_quad + i / kPiecesOfQuad} * groups +
                                      ahead_states.group;
        CopyBehind<16>(to + i, reinterpret_cast<const uint4*>(quad) + i % kPiecesOfQuad);
      }
    }
    ahead_states.Step(groups);
    EndOfCopies();
  };
#pragma unroll 1
  for (int n = 0; n < kStages - 1; ++n) stage_codes();
  AwaitKernelBefore();
#pragma unroll 1
  for (int n = 0; n < kStages - 1; ++n) stage_states();

  RowScore rows[kQuads][2];
  int32_t sum[kSums] = {};
  Place here;
#pragma unroll 1
  while (has_turn(here.turn)) {
    AwaitCopies<kStages - 2>();
    // What threads have copied, the tensor cores read.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();  // and nobody reads the stage before this one any more
    stage_codes();
    stage_states();
    const Stage& stage = stages[here.stage];
    const CodeOperands codes(stage.tiles[warp]);
    StartProducts();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      AddProducts(sum, codes.of_step[step], ColumnsAt(stage.quads[0].elements[2 * step]), step);
    }
    EndProducts(sum);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float4 packed = reinterpret_cast<const float4*>(stage.quads[q].constants)[lane % 4];
      const QuadGroup::Constants state = {packed.x, packed.y, packed.z, packed.w};
      rows[q][0].Add(sum[4 * q], sum[4 * q + 1], codes.scale[0], state);
      rows[q][1].Add(sum[4 * q + 2], sum[4 * q + 3], codes.scale[1], state);
    }
    const int tile = tile_of(here.turn);
    here.Step(groups);
    if (here.group != 0) continue;
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
         sizeof(Stage) * kStages <= CurrentDeviceShape().most_shared_bytes;
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
                .shared_bytes = sizeof(Stage) * kStages},
               &argument, stream);
}

}  // namespace sluice::cuda
