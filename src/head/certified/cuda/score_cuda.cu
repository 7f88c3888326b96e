// The intervals of all rows of the head for up to eight hidden states: what score_table.h says, bit
// for bit, by matrix products of bytes. A warp reads tile after tile as one stream that it copies
// ahead into shared memory, and waits for no other warp; the hidden states lie in shared memory for
// all of them, where there is room.
#include "head/certified/cuda/async_copy.cuh"
#include "head/certified/cuda/score_ends.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kSlots = 8;  // groups of a warp

// What a warp has of a group of a tile, each thread what it will need itself.
struct StagedGroup {
  uint4 codes[2][kWarpSize];
  uint32_t scales[kWarpSize];
};

// Lies before the hidden states, where there is room for them. On whole lines: a copy that lands
// across two lines of shared memory sends L2 two requests.
template <int kQuads>
struct alignas(128) StreamMemory {
  StagedGroup ring[kWarps][kSlots];
  EndsOfBlock<kQuads> ends;
};
static_assert(sizeof(StagedGroup) % 128 == 0);

struct StreamArgument {
  CertifiedArgs call;
  bool has_room;  // for hidden states
};

// 16 rows of codes times 8 columns, over 32 elements.
__device__ __forceinline__ void AddProducts(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int kQuads>
__global__ void __launch_bounds__(kThreads, 1)
    StreamKernel(const __grid_constant__ StreamArgument argument) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto& memory = *reinterpret_cast<StreamMemory<kQuads>*>(shared);
  LetNextKernelStart();
  const CertifiedArgs& call = argument.call;
  const PlanesArgument& planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int groups = planes.groups;
  // Whole tiles, as many of each warp but for one.
  const int64_t warps = int64_t{gridDim.x} * kWarps;
  const int64_t of_all = int64_t{warp} * gridDim.x + blockIdx.x;
  const int first_tile = static_cast<int>(of_all * planes.tiles / warps);
  const int end_tile = static_cast<int>((of_all + 1) * planes.tiles / warps);
  const int64_t first = int64_t{first_tile} * groups;
  const int64_t end = int64_t{end_tile} * groups;
  StagedGroup(&ring)[kSlots] = memory.ring[warp];
  auto stage = [&](int64_t group) {
    if (group < end) {
      StagedGroup& to = ring[static_cast<uint32_t>(group) % kSlots];
      const uint4* const from = planes.codes + group * 2 * kWarpSize + lane;
      StartCopy<16>(&to.codes[0][lane], from);
      StartCopy<16>(&to.codes[1][lane], from + kWarpSize);
      StartCopy<4>(&to.scales[lane], planes.scales + group * 8 + lane / 4);
    }
    CommitCopies();
  };
#pragma unroll
  for (int n = 0; n < kSlots - 1; ++n) stage(first + n);
  AwaitKernelBefore();
  const int first_quad = static_cast<int>(blockIdx.y) * kQuads;
  memory.ends.Read(call, first_quad * kStatesOfQuad);
  const QuadGroup* quads = call.memory.quads + PlaceOfQuad(first_quad, 0, groups);
  int quads_of_group = kQuadsTogether;
  if (argument.has_room) {
    constexpr int kPieces = sizeof(QuadGroup) / sizeof(uint4);
    constexpr int kPiecesOfGroup = kQuads * kPieces;
    auto* const copy = reinterpret_cast<uint4*>(&memory + 1);
    const auto* const from = reinterpret_cast<const uint4*>(quads);
    for (int i = static_cast<int>(threadIdx.x); i < groups * kPiecesOfGroup; i += kThreads) {
      StartCopy<16>(copy + i,
                    from + i / kPiecesOfGroup * kQuadsTogether * kPieces + i % kPiecesOfGroup);
    }
    CommitCopies();
    AwaitCopies<0>();
    quads = reinterpret_cast<const QuadGroup*>(copy);
    quads_of_group = kQuads;
  }
  __syncthreads();
  int64_t next = first;
#pragma unroll 1
  for (int tile = first_tile; tile < end_tile; ++tile) {
    RowScore rows[kQuads][2];
#pragma unroll 1
    for (int group = 0; group < groups; ++group, ++next) {
      AwaitCopies<kSlots - 2>();
      const StagedGroup& staged = ring[static_cast<uint32_t>(next) % kSlots];
      const CodeOperands codes(staged.codes[0][lane], staged.codes[1][lane], staged.scales[lane]);
      stage(next + kSlots - 1);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const QuadGroup& quad = quads[group * quads_of_group + q];
        const auto* const words = &quad.elements[0][0][0] + lane;
        int32_t sum[4] = {};
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          AddProducts(sum, codes.of_step[step], words[2 * step * kWarpSize],
                      words[(2 * step + 1) * kWarpSize]);
        }
        const float4 packed = reinterpret_cast<const float4*>(quad.constants)[lane % 4];
        const QuadGroup::Constants state = {packed.x, packed.y, packed.z, packed.w};
        rows[q][0].Add(sum[0], sum[1], codes.scale[0], state);
        rows[q][1].Add(sum[2], sum[3], codes.scale[1], state);
      }
    }
    KeepTile(call, first_quad, tile, memory.ends, rows);
  }
  __syncthreads();
  memory.ends.Keep(call, first_quad * kStatesOfQuad);
}

template <int kQuads>
void Launch(const CertifiedArgs& call, void* stream) {
  const DeviceShape device = CurrentDeviceShape();
  const size_t states = sizeof(QuadGroup) * kQuads * static_cast<size_t>(call.planes.groups);
  constexpr size_t kFixed = sizeof(StreamMemory<kQuads>);
  const size_t room = device.most_shared_bytes - kFixed;
  StreamArgument argument = {call, states <= room};
  const auto quads = static_cast<unsigned>((call.memory.rows + kStatesOfQuad - 1) / kStatesOfQuad);
  LaunchDependent(reinterpret_cast<const void*>(StreamKernel<kQuads>),
                  {.blocks = static_cast<unsigned>(device.processors),
                   .blocks_y = (quads + kQuads - 1) / kQuads,
                   .threads = kThreads,
                   .shared_bytes = kFixed + (argument.has_room ? states : 0)},
                  &argument, stream);
}

}  // namespace

void LaunchScore(const CertifiedArgs& call, void* stream) {
  if (call.memory.rows <= kStatesOfQuad) return Launch<1>(call, stream);
  if (call.memory.rows > 2 * kStatesOfQuad && CanScoreMany()) return LaunchScoreMany(call, stream);
  Launch<2>(call, stream);
}

}  // namespace sluice::cuda
