// The intervals of all rows of the head: what score_table.h says, bit for bit, by the matrix
// product of bytes. A warp has a tile of 16 rows, or two, and up to eight quads of hidden states.
// Everything is copied ahead into shared memory: codes by the thread that will need them, hidden
// states by the block, whose warps go from group to group together.
#include "head/device_course.cuh"
#include "semantics/noise.h"
#include "semantics/widen.h"

namespace sluice::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;
constexpr int kThreads = kWarpsOfBlock * kWarpSize;
constexpr float kMagic = 0x1.8p23f;

// What a warp has of a group of a tile.
struct StagedGroup {
  uint4 codes[2][kWarpSize];
  uint32_t scales[kWarpSize];
};

// And what the block has of a group of a quad, in pieces of 16 bytes.
struct StagedQuad {
  uint4 fragments[2][kWarpSize];
  uint4 constants[kStatesOfQuad];
  float squares[kStatesOfQuad];
};
constexpr int kPiecesOfQuad = sizeof(StagedQuad) / 16;

template <int kTiles, int kQuads>
struct Stage {
  StagedQuad quads[kQuads];
  StagedGroup groups[kWarpsOfBlock][kTiles];
};

__device__ __forceinline__ void CopyAhead(void* to, const void* from, int bytes) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
  }
}
__device__ __forceinline__ void EndOfCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 16 rows of codes times 8 columns, over 32 elements.
__device__ __forceinline__ void AddProducts(int32_t (&sum)[4], uint32_t a0, uint32_t a1,
                                            uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A sum of high bytes and one of low bytes, each a float with the magic number in it.
__device__ __forceinline__ float SumOf(int32_t high, int32_t low) {
  const float h = __int_as_float(high) - kMagic;
  const float l = __int_as_float(low) - kMagic;
  return __fmaf_rn(h, 128.0f, l);  // below 2^24: exact
}

template <int kBit>
__device__ float LargerOfLanes(float x) {
  return fmaxf(x, __shfl_xor_sync(~0u, x, kBit));
}
// Of the threads that share a column.
__device__ float LargestOfTile(float x) {
  return LargerOfLanes<16>(LargerOfLanes<8>(LargerOfLanes<4>(x)));
}

// The interval of a token for a hidden state, kept; and what it adds to those of its tile.
struct TileEnds {
  float least = -INFINITY;
  float most = -INFINITY;
  float least_score = -INFINITY;
  float most_score = -INFINITY;

  __device__ void Add(const CallArgument& call, const RowCourse& course, int row, int id,
                      float score, float square) {
    const PlanesArgument& planes = call.planes;
    float width = 0.0f;
    if (id >= planes.vocab || IsMasked(call, row, id)) {
      score = -INFINITY;
    } else {
      if (call.head.bias != nullptr) score += call.head.bias[id];
      width = HalfWidth(score, square, planes.errors == nullptr ? 0.0f : planes.errors[id],
                        course.bound);
      float lower = -INFINITY, upper = INFINITY;  // of a width that is not finite
      if (width < INFINITY) {
        lower = score - width;
        upper = score + width;
      }
      least = fmaxf(least, lower);
      most = fmaxf(most, upper);
      if (course.decides == Decides::kSoftmax) {
        const float g = semantics::Gumbel(
            semantics::NoiseBits(course.key, semantics::GumbelStream(course.key), id));
        least_score = fmaxf(least_score, __fmaf_rn(lower, course.draw_scale, g));
        most_score = fmaxf(most_score, __fmaf_rn(upper, course.draw_scale, g));
      }
    }
    const int64_t at = int64_t{row} * planes.tiles * kTileRows + id;
    call.memory.scores[at] = score;
    call.memory.widths[at] = width;
  }
};

template <int kTiles, int kQuads, int kStages, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    ScoreKernel(const __grid_constant__ CallArgument call) {
  extern __shared__ __align__(16) unsigned char shared[];
  LetNextKernelStart();
  const PlanesArgument& planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  auto* const stages = reinterpret_cast<Stage<kTiles, kQuads>*>(shared);
  const int first_tile = (static_cast<int>(blockIdx.x) * kWarpsOfBlock + warp) * kTiles;
  const int first_quad = static_cast<int>(blockIdx.y) * kQuads;
  const int row_of_thread = lane / 4;  // of the tile, and 8 behind it
  const int groups = planes.groups;

  auto stage_codes = [&](int group) {
    if (group >= groups) return;
    StagedGroup* const to = stages[group % kStages].groups[warp];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int64_t tile = min(first_tile + n, planes.tiles - 1);
      const uint4* const codes = planes.codes + (tile * groups + group) * 2 * kWarpSize;
      CopyAhead(&to[n].codes[0][lane], codes + lane, 16);
      CopyAhead(&to[n].codes[1][lane], codes + kWarpSize + lane, 16);
      CopyAhead(&to[n].scales[lane], planes.scales + (tile * groups + group) * 8 + row_of_thread,
                4);
    }
  };
  auto stage_states = [&](int group) {
    if (group < groups) {
      StagedQuad* const quads = stages[group % kStages].quads;
      for (int i = static_cast<int>(threadIdx.x); i < kQuads * kPiecesOfQuad; i += kThreads) {
        const int q = i / kPiecesOfQuad;
        const int piece = i % kPiecesOfQuad;
        const int64_t at = int64_t{first_quad + q} * groups + group;
        const uint4* from = piece < 64   ? call.memory.fragments + at * 64 + piece
                            : piece < 68 ? reinterpret_cast<const uint4*>(call.memory.constants) +
                                               at * 4 + piece - 64
                                         : reinterpret_cast<const uint4*>(call.memory.squares) + at;
        CopyAhead(reinterpret_cast<uint4*>(quads + q) + piece, from, 16);
      }
    }
    EndOfCopies();
  };
#pragma unroll
  for (int group = 0; group < kStages - 1; ++group) stage_codes(group);
  AwaitKernelBefore();
#pragma unroll
  for (int group = 0; group < kStages - 1; ++group) stage_states(group);

  float score[kTiles][kQuads][2] = {};
  float square[kTiles][kQuads][2] = {};
#pragma unroll 1
  for (int group = 0; group < groups; ++group) {
    AwaitCopies<kStages - 2>();
    __syncthreads();  // and nobody reads the stage before this one any more
    stage_codes(group + kStages - 1);
    stage_states(group + kStages - 1);
    const StagedGroup* const staged = stages[group % kStages].groups[warp];
    const StagedQuad* const quads = stages[group % kStages].quads;
    uint32_t low[kTiles][8], high[kTiles][8];
    float scale[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint4 a = staged[n].codes[0][lane];
      const uint4 b = staged[n].codes[1][lane];
      const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        low[n][i] = words[i] & 0x0f0f0f0fu;
        high[n][i] = words[i] >> 4 & 0x0f0f0f0fu;
      }
      const uint32_t scales = staged[n].scales[lane];
      scale[n][0] = __uint_as_float(scales << 16);
      scale[n][1] = __uint_as_float(scales & 0xffff0000u);
    }
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const uint4 first = quads[q].fragments[0][lane];
      const uint4 second = quads[q].fragments[1][lane];
      const uint4 of_state = quads[q].constants[lane % 4];
      const float norm = quads[q].squares[lane % 4];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        int32_t sum[4] = {static_cast<int32_t>(of_state.x), static_cast<int32_t>(of_state.y),
                          static_cast<int32_t>(of_state.x), static_cast<int32_t>(of_state.y)};
        const auto& l = low[n];
        const auto& h = high[n];
        AddProducts(sum, l[0], l[1], l[2], l[3], first.x, first.y);
        AddProducts(sum, h[0], h[1], h[2], h[3], first.z, first.w);
        AddProducts(sum, l[4], l[5], l[6], l[7], second.x, second.y);
        AddProducts(sum, h[4], h[5], h[6], h[7], second.z, second.w);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float y = __fmaf_rn(SumOf(sum[2 * r], sum[2 * r + 1]), __uint_as_float(of_state.z),
                                    __uint_as_float(of_state.w));
          score[n][q][r] = __fmaf_rn(scale[n][r], y, score[n][q][r]);
          square[n][q][r] = __fmaf_rn(scale[n][r] * scale[n][r], norm, square[n][q][r]);
        }
      }
    }
  }

#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const int row = (first_quad + q) * kStatesOfQuad + lane % 4;
    const bool is_there = row < call.memory.rows;
    const RowCourse& course = call.memory.courses[is_there ? row : 0];
    const bool is_asked = is_there && (course.way == RowCourse::Way::kPlanes ||
                                       course.way == RowCourse::Way::kAllowed);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const int tile = first_tile + n;
      TileEnds ends;
      if (is_asked && tile < planes.tiles) {
        const int id = tile * kTileRows + row_of_thread;
        ends.Add(call, course, row, id, score[n][q][0], square[n][q][0]);
        ends.Add(call, course, row, id + 8, score[n][q][1], square[n][q][1]);
      }
      ends.least = LargestOfTile(ends.least);
      ends.most = LargestOfTile(ends.most);
      ends.least_score = LargestOfTile(ends.least_score);
      ends.most_score = LargestOfTile(ends.most_score);
      if (row_of_thread != 0 || !is_asked || tile >= planes.tiles) continue;
      const int64_t at = int64_t{row} * planes.tiles + tile;
      call.memory.tile_least[at] = ends.least;
      call.memory.tile_most[at] = ends.most;
      call.memory.tile_least_scores[at] = ends.least_score;
      call.memory.tile_most_scores[at] = ends.most_score;
    }
  }
}

template <int kTiles, int kQuads, int kStages, int kBlocks>
void Launch(const CallArgument& call, void* stream) {
  const int quads = (call.memory.rows + kStatesOfQuad - 1) / kStatesOfQuad;
  constexpr int kTilesOfBlock = kWarpsOfBlock * kTiles;
  CallArgument argument = call;
  LaunchBehind(reinterpret_cast<const void*>(ScoreKernel<kTiles, kQuads, kStages, kBlocks>),
               static_cast<unsigned>((call.planes.tiles + kTilesOfBlock - 1) / kTilesOfBlock),
               static_cast<unsigned>((quads + kQuads - 1) / kQuads), kThreads,
               sizeof(Stage<kTiles, kQuads>) * kStages, &argument, stream);
}

}  // namespace

void LaunchScore(const CallArgument& call, void* stream) {
  const int rows = call.memory.rows;
  if (rows <= 4) return Launch<1, 1, 4, 4>(call, stream);
  if (rows <= 8) return Launch<1, 2, 4, 3>(call, stream);
  if (rows <= 16) return Launch<1, 4, 4, 2>(call, stream);
  Launch<2, 8, 4, 1>(call, stream);
}

}  // namespace sluice::cuda
