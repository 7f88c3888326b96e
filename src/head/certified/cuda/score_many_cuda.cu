// The intervals of all rows of the head for 32 hidden states at a time, by Hopper's products of
// warpgroups: 64 rows of the head from registers times 64 columns, the bytes of the hidden states,
// from shared memory. A warp has a tile. Four warps more start the copies of what they need of a
// group, by the engine for bulk copies, and are as far ahead of them as there is room; they may be
// as far apart.
#include <algorithm>

#include "cuda/ptx.cuh"
#include "head/certified/cuda/score_ends.cuh"

namespace sluice::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_WARPGROUPS 1
#else
#define SLUICE_WARPGROUPS 0
#endif

constexpr int kWarps = 16;                        // that multiply
constexpr int kMultiplying = kWarps * kWarpSize;  // threads
constexpr int kCopiers = 4;                       // warps
constexpr int kThreads = kMultiplying + kCopiers * kWarpSize;
constexpr int kQuads = kQuadsTogether;
constexpr int kColumns = kQuads * 2 * kStatesOfQuad;
constexpr int kStages = 8;
constexpr int kSums = kColumns / 2;  // of a thread

// Registers of a thread. A block keeps the number it was launched with, however its threads share
// them: a thread that requests more waits until others have released theirs, and for ever where
// none will be released.
constexpr int kRegistersToMultiply = 112;
constexpr int kRegistersToCopy = 24;
constexpr int kRegisters =
    kMultiplying * kRegistersToMultiply + (kThreads - kMultiplying) * kRegistersToCopy;
constexpr int kMostRegisters = 65536 / kThreads / 8 * 8;  // of a thread, by the launch bounds
static_assert(kRegisters <= kThreads * kMostRegisters);

struct Stage {
  QuadGroup quads[kQuads];
  uint4 codes[kWarps][2][kWarpSize];
};
static_assert(sizeof(Stage) % 128 == 0);  // columns start at multiples of 16, copies too
struct ManyMemory {
  Stage stages[kStages];
  uint64_t full[kStages];   // barriers: the copies have come
  uint64_t empty[kStages];  // and all warps have done with them
  EndsOfBlock<kQuads> ends;
};

// Code for other devices has no such products, and says so by its number of threads.
constexpr int kMostThreads = SLUICE_WARPGROUPS == 1 ? kThreads : kWarpSize;

#if SLUICE_WARPGROUPS
__device__ __forceinline__ uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// arrivals: the number that a phase of the barrier waits for in addition to the bytes.
__device__ __forceinline__ void StartBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;"
               :
               : "r"(SharedAddress(barrier)), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void Await(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n\t"
      ".reg .pred is_over;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n\t"
      "@!is_over bra again;\n\t"
      "}"
      :
      : "r"(barrier), "r"(phase)
      : "memory");
}
// Copies from global memory, in multiples of 16 bytes, which count at the barrier once they arrive.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(SharedAddress(to)), "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
// Bytes that will be read soon, sixteens, on their way to L2.
__device__ __forceinline__ void FetchAhead(const void* from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Where a product of 32 elements finds its columns: in sixteens of elements 128 bytes apart, and in
// eights of columns a QuadGroup apart. at: of the first elements; the next are kColumnsStep on.
__device__ __forceinline__ uint64_t ColumnsAt(uint32_t at) {
  constexpr uint64_t kSixteens = 128 >> 4;
  constexpr uint64_t kEights = sizeof(QuadGroup) >> 4;
  return (at & 0x3ffff) >> 4 | kSixteens << 16 | kEights << 32;
}
constexpr uint64_t kColumnsStep = 2 * sizeof(QuadGroup::elements[0]) >> 4;

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

#if SLUICE_WARPGROUPS
// The tiles of a block, where blocks differ by at most one: turns of sixteen, and then the rest.
class TilesOfBlock {
 public:
  __device__ explicit TilesOfBlock(const PlanesArgument& planes)
      : groups(planes.groups),
        first_(static_cast<int>(int64_t{blockIdx.x} * planes.tiles / gridDim.x)),
        count_(static_cast<int>(int64_t{blockIdx.x + 1} * planes.tiles / gridDim.x) - first_),
        turns((count_ + kWarps - 1) / kWarps) {}

  __device__ int OfTurn(int turn) const { return min(count_ - turn * kWarps, kWarps); }
  // After the last tile comes the last tile again.
  __device__ int Tile(int turn, int warp) const {
    return first_ + min(turn * kWarps + warp, count_ - 1);
  }

  const int groups;

 private:
  const int first_;
  const int count_;

 public:
  const int turns;
};

// By kCopiers warps. A copy is started by one thread after another of a warp, so a warp that starts
// all of a group takes longer than the multiplying warps.
__device__ void CopyAhead(const CertifiedArgs& call, const TilesOfBlock& tiles, int first_quad,
                          ManyMemory& memory) {
  constexpr int kTilesOfCopier = kWarps / kCopiers;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_tile =
      (static_cast<int>(threadIdx.x) - kMultiplying) / kWarpSize * kTilesOfCopier;
  // The first warp copies the states as well, and announces the bytes to come. A warp with nothing
  // to copy in the last turn must not wait in it either: no warp waits for it, and a barrier that
  // is two phases on looks like one in the phase that the warp last saw.
  const bool has_last = first_tile < tiles.OfTurn(tiles.turns - 1);
  const int steps = (tiles.turns - (has_last ? 0 : 1)) * tiles.groups;
  auto copy_codes = [&](int step, int turn, int group) {
    const int tile = first_tile + lane;
    if (lane >= kTilesOfCopier || tile >= tiles.OfTurn(turn)) return;
    Stage& to = memory.stages[step % kStages];
    const int64_t from = int64_t{tiles.Tile(turn, tile)} * tiles.groups + group;
    if (group == 0) {
      FetchAhead(call.planes.scales + from * 8,
                 tiles.groups * 8 * static_cast<int>(sizeof(uint32_t)));
    }
    CopyBulk(to.codes[tile], call.planes.codes + from * 2 * kWarpSize, sizeof to.codes[0],
             &memory.full[step % kStages]);
  };
  auto copy_states = [&](int step, int turn, int group) {
    if (first_tile + lane != 0) return;
    Stage& to = memory.stages[step % kStages];
    uint64_t* const full = &memory.full[step % kStages];
    ExpectBytes(full, static_cast<int>(sizeof to.quads + sizeof to.codes[0] * tiles.OfTurn(turn)));
    CopyBulk(to.quads, call.memory.quads + PlaceOfQuad(first_quad, group, tiles.groups),
             sizeof to.quads, full);
  };
  const int first_steps = min(kStages, steps);
#pragma unroll 1
  for (int n = 0; n < first_steps; ++n) copy_codes(n, n / tiles.groups, n % tiles.groups);
  AwaitKernelBefore();
#pragma unroll 1
  for (int n = 0; n < first_steps; ++n) copy_states(n, n / tiles.groups, n % tiles.groups);
  int turn = first_steps / tiles.groups;
  int group = first_steps % tiles.groups;
#pragma unroll 1
  for (int n = first_steps; n < steps; ++n) {
    AwaitBarrier(&memory.empty[n % kStages], (n / kStages - 1) % 2);
    copy_states(n, turn, group);
    copy_codes(n, turn, group);
    if (++group < tiles.groups) continue;
    group = 0;
    ++turn;
  }
}

// By the warps that multiply.
__device__ void ScoreTiles(const CertifiedArgs& call, const TilesOfBlock& tiles, int first_quad,
                           ManyMemory& memory) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  // Values that the compiler would compute again and again.
  const uint32_t stages = Again(SharedAddress(memory.stages));
  const uint32_t full = Again(SharedAddress(memory.full));
  const uint32_t empty = Again(SharedAddress(memory.empty));
  auto scales_of = [&](int turn) {
    return call.planes.scales + int64_t{tiles.Tile(turn, warp)} * tiles.groups * 8 + lane / 4;
  };
  // A stage is released when the next step begins and not when its last read has been issued: an
  // arrival does not wait for reads that are on their way, and the next copy overtook them (in 5
  // of 1000 calls of 32 states, CUDA 13.0; score_again_cuda_test). By then, sums hold what they
  // read.
  auto give_back = [&](uint32_t step) {
    __syncwarp();
    if (lane == 0) Arrive(empty + step % kStages * sizeof(uint64_t));
  };
  RowScore rows[kQuads][2];
  int32_t sum[kSums] = {};
  const uint32_t* scales = scales_of(0);
  uint32_t next_scales = __ldg(scales);
  uint32_t step = 0;
#pragma unroll 1
  for (int turn = 0; turn < tiles.turns; ++turn) {
#pragma unroll 1
    for (int group = 0; group < tiles.groups; ++group, ++step) {
      if (group > 0) give_back(step - 1);
      const uint32_t place = step % kStages;
      const uint32_t scales_here = next_scales;
      scales = group + 1 < tiles.groups ? scales + 8 : scales_of(turn + 1);
      next_scales = __ldg(scales);
      Await(full + place * sizeof(uint64_t), step / kStages % 2);
      const Stage& stage = memory.stages[place];
      const CodeOperands codes(stage.codes[warp][0][lane], stage.codes[warp][1][lane], scales_here);
      const uint64_t columns = ColumnsAt(stages + place * sizeof(Stage));
      StartProducts();
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        AddProducts(sum, codes.of_step[part], columns + part * kColumnsStep, part);
      }
      EndProducts(sum);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const float4 packed = reinterpret_cast<const float4*>(stage.quads[q].constants)[lane % 4];
        const QuadGroup::Constants state = {packed.x, packed.y, packed.z, packed.w};
        rows[q][0].Add(sum[4 * q], sum[4 * q + 1], codes.scale[0], state);
        rows[q][1].Add(sum[4 * q + 2], sum[4 * q + 3], codes.scale[1], state);
      }
    }
    give_back(step - 1);
    if (warp < tiles.OfTurn(turn)) {
      KeepTile(call, first_quad, tiles.Tile(turn, warp), memory.ends, rows);
    }
#pragma unroll
    for (auto& of_quad : rows) of_quad[0] = of_quad[1] = RowScore{};
  }
}
#endif

__global__ void __launch_bounds__(kMostThreads, 1)
    ManyKernel(const __grid_constant__ CertifiedArgs call) {
#if SLUICE_WARPGROUPS
  extern __shared__ __align__(128) unsigned char shared[];
  ManyMemory& memory = *reinterpret_cast<ManyMemory*>(shared);
  LetNextKernelStart();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      StartBarrier(&memory.full[s], 1);
      StartBarrier(&memory.empty[s], kWarps);
    }
  }
  __syncthreads();
  const TilesOfBlock tiles(call.planes);
  const int first_quad = static_cast<int>(blockIdx.y) * kQuads;
  // Copying threads leave registers to the multiplying ones.
  if (threadIdx.x >= kMultiplying) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegistersToCopy));
    CopyAhead(call, tiles, first_quad, memory);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegistersToMultiply));
    AwaitKernelBefore();
    memory.ends.Read(call, first_quad * kStatesOfQuad);
    SyncThreads(kMultiplying);
    ScoreTiles(call, tiles, first_quad, memory);
    SyncThreads(kMultiplying);
    memory.ends.Keep(call, first_quad * kStatesOfQuad);
  }
#endif
}

}  // namespace

bool CanScoreMany() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(ManyKernel)) ==
             cudaSuccess &&
         attributes.maxThreadsPerBlock >= kThreads && attributes.numRegs * kThreads >= kRegisters &&
         sizeof(ManyMemory) <= CurrentDeviceShape().most_shared_bytes;
}

void LaunchScoreMany(const CertifiedArgs& call, void* stream) {
  const DeviceShape device = CurrentDeviceShape();
  const int quads = (call.memory.rows + kStatesOfQuad - 1) / kStatesOfQuad;
  const int blocks = (call.planes.tiles + kWarps - 1) / kWarps;
  CertifiedArgs argument = call;
  LaunchDependent(reinterpret_cast<const void*>(ManyKernel),
                  {.blocks = static_cast<unsigned>(std::min<int64_t>(blocks, device.processors)),
                   .blocks_y = static_cast<unsigned>((quads + kQuads - 1) / kQuads),
                   .threads = kThreads,
                   .shared_bytes = sizeof(ManyMemory)},
                  &argument, stream);
}

}  // namespace sluice::cuda
