// What the kernels that score have in common: what becomes of codes and of the scores of a tile.
#pragma once

#include "head/certified/cuda/branchless_sqrt.cuh"
#include "head/certified/cuda/row_progress.cuh"
#include "head/certified/cuda/row_threshold.cuh"
#include "semantics/draw/noise.h"

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

// What the ends of tiles take of a hidden state's progress, and what the tiles of a block make sure
// of. In shared memory, so that no thread waits for global memory at the end of a tile, and one
// atomic a block instead of one a tile updates the row's ends.
struct StateEnds {
  NoiseKey key;
  StepBound bound;
  float draw_scale;
  bool is_certified;
  bool is_draw;
  bool takes_one;  // token
  SureEnds sure;
};

template <int kQuads>
class EndsOfBlock {
 public:
  static constexpr int kStates = kQuads * kStatesOfQuad;

  // By at least kStates threads, after the previous kernel; then a barrier before others use it.
  __device__ void Read(const CertifiedArgs& call, int first_row) {
    if (threadIdx.x >= kStates) return;
    StateEnds& mine = states[threadIdx.x];
    const int row = first_row + static_cast<int>(threadIdx.x);
    mine = {};
    if (row >= call.memory.rows) return;
    const RowProgress& progress = call.memory.progress[row];
    mine.key = progress.key;
    mine.bound = progress.bound;
    mine.draw_scale = progress.draw_scale;
    mine.is_certified =
        progress.way == RowProgress::Way::kPlanes || progress.way == RowProgress::Way::kAllowed;
    mine.is_draw = mine.is_certified && progress.filter_class == FilterClass::kSoftmax;
    mine.takes_one = progress.k <= 1;
  }
  // By these threads, after the last tile and a barrier.
  __device__ void Keep(const CertifiedArgs& call, int first_row) const {
    const int row = first_row + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= kStates || row >= call.memory.rows) return;
    const SureEnds mine = states[threadIdx.x].sure;
    if (mine.least != 0) atomicMax(&call.memory.sure[row].least, mine.least);
    if (mine.best != 0) atomicMax(&call.memory.sure[row].best, mine.best);
  }

  StateEnds states[kStates];
};

// The high bits of the noise of a thread's two tokens for each quad, the second in the high half:
// those of row / 2's word of two blocks, row being lane / 4 and then lane / 4 + 8. begin: the id of
// the tile's first token. By all threads of a warp.
template <int kQuads>
struct NoiseOfTile {
  uint32_t high[kQuads] = {};

  __device__ NoiseOfTile(const EndsOfBlock<kQuads>& block, int32_t begin) {
    const uint32_t lane = threadIdx.x % kWarpSize;
    const uint32_t row = lane / 4;
    if (begin % 8 != 0) {
      TakeOneByOne(block, begin + static_cast<int32_t>(row));
      return;
    }
    const uint32_t first_block = static_cast<uint32_t>(begin) / 8;
    auto block_of = [&](const StateEnds& state, uint32_t index) {
      return semantics::NoiseBlock(state.key, semantics::GumbelStream(state.key), index, 0);
    };
    if constexpr (kQuads == 8) {
      // A thread has both blocks for the quad of its row, and gives words away.
      uint32_t words[8] = {};
      const StateEnds& state = block.states[lane];
      if (state.is_draw) {
        const semantics::Block first = block_of(state, first_block);
        const semantics::Block second = block_of(state, first_block + 1);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          words[2 * w] = first.word[w];
          words[2 * w + 1] = second.word[w];
        }
      }
#pragma unroll
      for (int bit = 1; bit < 8; bit *= 2) {
        const bool has_bit = (row & static_cast<uint32_t>(bit)) != 0;
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          if ((w & bit) != 0) continue;
          const uint32_t given = has_bit ? words[w] : words[w + bit];
          const uint32_t taken = __shfl_xor_sync(~0u, given, 4 * bit);
          (has_bit ? words[w] : words[w + bit]) = taken;
        }
      }
#pragma unroll
      for (int q = 0; q < kQuads; ++q) Set(q, words[q], row);
    } else {
      // A thread has one of the blocks.
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const StateEnds& state = block.states[q * kStatesOfQuad + lane % 4];
        const semantics::Block mine = block_of(state, first_block + row % 2);
        Set(q, mine.Word(row / 2), row);
      }
    }
  }

 private:
  // Of a slice with tiles that begin inside a block of noise, and so have tokens of three. id: of
  // the first token.
  __device__ void TakeOneByOne(const EndsOfBlock<kQuads>& block, int32_t id) {
#pragma unroll 1
    for (int q = 0; q < kQuads; ++q) {
      const StateEnds& state = block.states[q * kStatesOfQuad + threadIdx.x % 4];
      uint32_t both = 0;
      if (state.is_draw) {
        const semantics::Stream stream = semantics::GumbelStream(state.key);
        both = semantics::NoiseHigh(state.key, stream, id) |
               semantics::NoiseHigh(state.key, stream, id + 8) << 16;
      }
#pragma unroll
      for (int i = 0; i < kQuads; ++i) high[i] = i == q ? both : high[i];  // in registers
    }
  }

  // mine: a word of block row % 2.
  __device__ void Set(int q, uint32_t mine, uint32_t row) {
    const uint32_t others = __shfl_xor_sync(~0u, mine, 4);
    const uint32_t first = row % 2 == 0 ? mine : others;
    const uint32_t second = row % 2 == 0 ? others : mine;
    high[q] = __byte_perm(first, second, row % 2 == 0 ? 0x5410 : 0x7632);
  }
};

// Of each quad's values the largest of the eight threads that share a column; the quad of a thread
// is QuadOfThread.
template <int kQuads>
__device__ __forceinline__ float LargestOfTile(float (&of_quad)[kQuads]) {
#pragma unroll
  for (int bit = 16, quads = kQuads / 2; bit >= 4; bit /= 2, quads /= 2) {
    const bool has_bit = (threadIdx.x & static_cast<unsigned>(bit)) != 0;
    if (quads == 0) of_quad[0] = fmaxf(of_quad[0], __shfl_xor_sync(~0u, of_quad[0], bit));
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const float kept = has_bit ? of_quad[q + quads] : of_quad[q];
      const float given = has_bit ? of_quad[q] : of_quad[q + quads];
      of_quad[q] = fmaxf(kept, __shfl_xor_sync(~0u, given, bit));
    }
  }
  return of_quad[0];
}
template <int kQuads>
__device__ __forceinline__ int QuadOfThread() {
  return static_cast<int>(threadIdx.x) % kWarpSize / 4 / (8 / kQuads);
}

// A thread's tokens of a tile that have no score, as bits 2 q + i: masked, or past the end of the
// vocabulary. id: of the first.
template <int kQuads>
__device__ __forceinline__ uint32_t TokensOut(const CertifiedArgs& call, int first_row, int id) {
  const int32_t vocab = call.planes.vocab;
  if (call.bitmask == nullptr && id + 8 < vocab) return 0;
  uint32_t out = 0;
#pragma unroll 1
  for (int q = 0; q < kQuads; ++q) {
    const int row = first_row + q * kStatesOfQuad + static_cast<int>(threadIdx.x) % 4;
    if (row >= call.memory.rows) continue;
    for (int i = 0; i < 2; ++i) {
      if (id + 8 * i >= vocab || IsMasked(call, row, id + 8 * i)) out |= 1u << (2 * q + i);
    }
  }
  return out;
}

// The half widths of a thread's tokens in the place of v^2. One question for all of them, for each
// of sixteen branches would wait for what is before it.
template <int kQuads>
__device__ __forceinline__ void MakeWidths(const EndsOfBlock<kQuads>& block,
                                           const float (&error)[2], RowScore (&rows)[kQuads][2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  bool are_branchless = true;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    if (!block.states[q * kStatesOfQuad + lane % 4].is_certified) continue;
    are_branchless &= HasBranchlessSqrt(rows[q][0].square) && HasBranchlessSqrt(rows[q][1].square);
  }
  auto make = [&](auto root_of) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const StepBound bound = block.states[q * kStatesOfQuad + lane % 4].bound;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        RowScore& row = rows[q][i];
        row.square = HalfWidthOfRoot(row.score, root_of(row.square), error[i], bound);
      }
    }
  };
  if (are_branchless) {
    make([](float square) { return BranchlessSqrt(square); });
  } else {
    make([](float square) { return sqrtf(square); });
  }
}

// By all threads of a warp: the intervals of a tile's tokens for kQuads quads, kept, and the ends
// of the tile. rows: those of the thread, lane / 4 of the tile and lane / 4 + 8, for hidden state
// lane % 4 of each quad.
template <int kQuads>
__device__ inline void KeepTile(const CertifiedArgs& call, int first_quad, int tile,
                                EndsOfBlock<kQuads>& block, RowScore (&rows)[kQuads][2]) {
  const PlanesArgument& planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_row = first_quad * kStatesOfQuad;
  const int64_t width_of_row = int64_t{planes.tiles} * kTileRows;
  const int id = tile * kTileRows + lane / 4;
  float error[2] = {};
  if (planes.errors != nullptr) {
    error[0] = __ldg(planes.errors + id);
    error[1] = __ldg(planes.errors + id + 8);
  }
  if (call.head.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float bias = id + 8 * i < planes.vocab ? call.head.bias[id + 8 * i] : 0.0f;
#pragma unroll
      for (auto& of_quad : rows) of_quad[i].score += bias;
    }
  }
  MakeWidths(block, error, rows);
  const uint32_t out = TokensOut<kQuads>(call, first_row, id);
  if (out != 0) {
#pragma unroll
    for (int t = 0; t < 2 * kQuads; ++t) {
      if ((out >> t & 1u) != 0) rows[t / 2][t % 2] = {-INFINITY, 0.0f};
    }
  }
  float least[kQuads], most[kQuads];
  bool is_some_draw = false;
  const int64_t first_at = (first_row + lane % 4) * width_of_row + id;
  float* scores = call.memory.scores + first_at;
  float* widths = call.memory.widths + first_at;
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const StateEnds& state = block.states[q * kStatesOfQuad + lane % 4];
    is_some_draw |= state.is_draw;
    Ends ends[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const auto [score, width] = rows[q][i];
      if (state.is_certified) {
        scores[8 * i] = score;
        widths[8 * i] = width;
      }
      ends[i] = EndsOf(score, width);
      rows[q][i] = {ends[i].lower, ends[i].upper};
    }
    least[q] = fmaxf(ends[0].lower, ends[1].lower);
    most[q] = fmaxf(ends[0].upper, ends[1].upper);
    scores += kStatesOfQuad * width_of_row;
    widths += kStatesOfQuad * width_of_row;
  }
  const int of_block = QuadOfThread<kQuads>() * kStatesOfQuad + lane % 4;
  StateEnds& state = block.states[of_block];
  const bool keeps = lane / 4 % (8 / kQuads) == 0 && state.is_certified;
  const int64_t at = int64_t{first_row + of_block} * planes.tiles + tile;
  const float least_of_tile = LargestOfTile(least);
  const float most_of_tile = LargestOfTile(most);
  if (keeps) {
    call.memory.tile_most[at] = most_of_tile;
    call.memory.tile_least[at] = least_of_tile;
    if (state.takes_one) atomicMax(&state.sure.least, semantics::OrderKey(least_of_tile));
  }
  if (!__any_sync(~0u, is_some_draw)) return;
  const NoiseOfTile<kQuads> noise(block, call.question.first_id + tile * kTileRows);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const StateEnds& of_quad = block.states[q * kStatesOfQuad + lane % 4];
    least[q] = most[q] = -INFINITY;
    if (!of_quad.is_draw) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const NoiseEnds ends = NoiseEndsOf(noise.high[q] >> 16 * i & 0xffffu);
      least[q] = fmaxf(least[q], __fmaf_rn(rows[q][i].score, of_quad.draw_scale, ends.least));
      most[q] = fmaxf(most[q], __fmaf_rn(rows[q][i].square, of_quad.draw_scale, ends.most));
    }
  }
  const float least_score = LargestOfTile(least);
  const float most_score = LargestOfTile(most);
  if (!keeps || !state.is_draw || !state.takes_one) return;
  atomicMax(&state.sure.best, semantics::OrderKey(least_score));
  call.memory.tile_least_scores[at] = least_score;
  call.memory.tile_most_scores[at] = most_score;
}

}  // namespace sluice::cuda
