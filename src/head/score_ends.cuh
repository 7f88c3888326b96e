// What the kernels that score have in common: what becomes of codes and of the scores of a tile.
#pragma once

#include "head/device_course.cuh"
#include "semantics/noise.h"

namespace sluice::cuda {

// The operands of four matrix products: 16 q of 16 rows and 32 elements each.
struct CodeOperands {
  uint32_t of_step[4][4];
  float scale[2];

  __device__ CodeOperands(uint4 a, uint4 b, uint32_t scales) {
    const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      of_step[i / 4][i % 4] = words[i] << 4 & 0xf0f0f0f0u;
      of_step[2 + i / 4][i % 4] = words[i] & 0xf0f0f0f0u;
    }
    scale[0] = __uint_as_float(scales << 16);
    scale[1] = __uint_as_float(scales & 0xffff0000u);
  }
};

// A row's score and v^2 for one hidden state, and a group's share: the sums of products with the
// high and the low bytes, sixteen times what they stand for. Below 2^24, so exact as a float.
struct RowScore {
  float score = 0.0f;
  float square = 0.0f;

  __device__ void Add(int32_t high, int32_t low, float scale, const QuadGroup::Constants& state) {
    const float sum = __int2float_rn(high * 128 + low);
    score = __fmaf_rn(scale, __fmaf_rn(sum, state.scale, state.dither), score);
    square = __fmaf_rn(scale * scale, state.square, square);
  }
};

// The ends of what the noise of a token may be by the high bits of its number, and a little more:
// the approximations are off by less than 2^-11.
struct NoiseEnds {
  float least;
  float most;
};
__device__ inline NoiseEnds NoiseEndsOf(uint32_t high) {
  auto noise_of = [](uint32_t h) {  // 0 < h < 2^16
    const float u = static_cast<float>(h) * 0x1p-16f;
    const float series = u * (1.0f + u * (0.5f + u * (0.33333334f + u * 0.25f))) * 1.442695f;
    return -__log2f(h < 2048 ? series : 16.0f - __log2f(static_cast<float>(65536 - h)));
  };
  constexpr float kSlack = 0x1p-9f;
  return {high == 65535 ? -6.0f : noise_of(high + 1) - kSlack,
          high == 0 ? 50.0f : noise_of(high) + kSlack};
}

// The high bits of the noise of the two tokens of a thread. first_id: of the head's first row. By
// all threads of a warp.
__device__ inline uint2 NoiseHighOfTile(const NoiseKey& key, int32_t first_id, int tile) {
  const uint32_t row = threadIdx.x % kWarpSize / 4;  // and 8 behind it
  const semantics::Stream stream = semantics::GumbelStream(key);
  const int32_t begin = first_id + tile * kTileRows;
  if (begin % 8 != 0) {  // a tile has tokens of three blocks of noise, where it begins inside one
    const int32_t id = begin + static_cast<int32_t>(row);
    return {semantics::NoiseHigh(key, stream, id), semantics::NoiseHigh(key, stream, id + 8)};
  }
  const semantics::Block block =
      semantics::NoiseBlock(key, stream, static_cast<uint32_t>(begin) / 8 + row % 2, 0);
  const uint32_t even = row / 4 == 0 ? block.word[0] : block.word[2];
  const uint32_t odd = row / 4 == 0 ? block.word[1] : block.word[3];
  const uint32_t mine = row / 2 % 2 == 0 ? even : odd;
  const uint32_t others = __shfl_xor_sync(~0u, mine, 4);
  const uint32_t shift = 16 * (row % 2);
  const uint32_t first = row % 2 == 0 ? mine : others;
  const uint32_t second = row % 2 == 0 ? others : mine;
  return {first >> shift & 0xffffu, second >> shift & 0xffffu};
}

template <int kBit>
__device__ float LargerOfLanes(float x) {
  return fmaxf(x, __shfl_xor_sync(~0u, x, kBit));
}
// Of the threads that share a column.
__device__ inline float LargestOfTile(float x) {
  return LargerOfLanes<16>(LargerOfLanes<8>(LargerOfLanes<4>(x)));
}

// The intervals of the tokens of a tile for one hidden state, kept; and the ends of the tile.
struct TileEnds {
  float least = -INFINITY;
  float most = -INFINITY;
  float least_score = -INFINITY;
  float most_score = -INFINITY;

  __device__ void Add(const CallArgument& call, const RowCourse& course, int row, int id,
                      RowScore of_row, uint32_t noise_high) {
    const PlanesArgument& planes = call.planes;
    float score = of_row.score;
    float width = 0.0f;
    if (id >= planes.vocab || IsMasked(call, row, id)) {
      score = -INFINITY;
    } else {
      if (call.head.bias != nullptr) score += call.head.bias[id];
      width = HalfWidth(score, of_row.square, planes.errors == nullptr ? 0.0f : planes.errors[id],
                        course.bound);
      float lower = -INFINITY, upper = INFINITY;  // of a width that is not finite
      if (width < INFINITY) {
        lower = score - width;
        upper = score + width;
      }
      least = fmaxf(least, lower);
      most = fmaxf(most, upper);
      if (course.decides == Decides::kSoftmax) {
        const NoiseEnds noise = NoiseEndsOf(noise_high);
        least_score = fmaxf(least_score, __fmaf_rn(lower, course.draw_scale, noise.least));
        most_score = fmaxf(most_score, __fmaf_rn(upper, course.draw_scale, noise.most));
      }
    }
    const int64_t at = int64_t{row} * planes.tiles * kTileRows + id;
    call.memory.scores[at] = score;
    call.memory.widths[at] = width;
  }
};

// What the tiles of a block make sure of, of kStates hidden states. In shared memory, so that
// blocks and not tiles meet at the row's.
template <int kStates>
struct SureOfBlock {
  SureEnds ends[kStates];

  // Before others add to it there must be a barrier, and one before Keep.
  __device__ void Clear() {
    if (threadIdx.x < kStates) ends[threadIdx.x] = {};
  }
  __device__ void Keep(const CallArgument& call, int first_row) const {
    const int row = first_row + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= kStates || row >= call.memory.rows) return;
    const SureEnds mine = ends[threadIdx.x];
    if (mine.least != 0) atomicMax(&call.memory.sure[row].least, mine.least);
    if (mine.best != 0) atomicMax(&call.memory.sure[row].best, mine.best);
  }
};

// By all threads of a warp. sure: of the quad. rows: those of the thread, lane / 4 of the tile and
// 8 behind it, for hidden state lane % 4 of the quad.
__device__ inline void KeepTile(const CallArgument& call, int quad, int tile, SureEnds* sure,
                                const RowScore (&rows)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = quad * kStatesOfQuad + lane % 4;
  const bool is_there = row < call.memory.rows;
  const RowCourse& course = call.memory.courses[is_there ? row : 0];
  const bool is_asked =
      is_there && (course.way == RowCourse::Way::kPlanes || course.way == RowCourse::Way::kAllowed);
  const bool is_draw = is_asked && course.decides == Decides::kSoftmax;
  uint2 noise = {0, 0};
  if (__any_sync(~0u, is_draw)) noise = NoiseHighOfTile(course.key, call.question.first_id, tile);
  TileEnds ends;
  if (is_asked) {
    const int id = tile * kTileRows + lane / 4;
    ends.Add(call, course, row, id, rows[0], noise.x);
    ends.Add(call, course, row, id + 8, rows[1], noise.y);
  }
  ends.least = LargestOfTile(ends.least);
  ends.most = LargestOfTile(ends.most);
  if (__any_sync(~0u, is_draw)) {
    ends.least_score = LargestOfTile(ends.least_score);
    ends.most_score = LargestOfTile(ends.most_score);
  }
  if (lane / 4 != 0 || !is_asked) return;
  const int64_t at = int64_t{row} * call.planes.tiles + tile;
  call.memory.tile_most[at] = ends.most;
  call.memory.tile_least[at] = ends.least;
  if (course.k > 1) return;
  atomicMax(&sure[lane].least, semantics::OrderKey(ends.least));
  if (!is_draw) return;
  atomicMax(&sure[lane].best, semantics::OrderKey(ends.least_score));
  call.memory.tile_least_scores[at] = ends.least_score;
  call.memory.tile_most_scores[at] = ends.most_score;
}

}  // namespace sluice::cuda
