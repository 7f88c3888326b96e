// The second plane of strict planes: from the score of a token to that of both planes, as
// score_table.h says, bit for bit.
//
// A warp multiplies the low codes of two tokens with the hidden state, a thread sixteen bytes of a
// group at a time, and keeps a term a group; then a thread adds up the terms of a token in their
// order.
#pragma once

#include "head/certified/cuda/row_threshold.cuh"

namespace sluice::cuda {

// A group of the hidden state in shared memory. Its size puts two groups, which eight threads read
// at once, into different halves of the banks.
struct alignas(16) NearGroup {
  uint4 high[kPlaneGroup / 16];
  uint4 low[kPlaneGroup / 16];
  QuadGroup::Constants constants;
  uint4 padding[3];
};
static_assert(sizeof(NearGroup) == 320);

// What a group adds to the score of a token.
struct GroupTerm {
  float y;
  float scale;
};

// Terms of a token, so that threads with neighbouring tokens read different banks.
SLUICE_HD inline int TermsOfToken(int groups) { return groups | 1; }

class LowPlane {
 public:
  __device__ LowPlane(const CertifiedArgs& call, int row, NearGroup* state, GroupTerm* terms)
      : planes_(call.planes),
        memory_(call.memory),
        bound_(call.memory.progress[row].bound),
        state_(state),
        terms_(terms),
        row_(row) {}

  // The hidden state, by all threads of the block; before it is used there must be a barrier.
  __device__ void CopyState() const {
    constexpr int kPieces = 2 * kPlaneGroup / 16 + 1;
    const int state = row_ % kStatesOfQuad;
    for (int i = static_cast<int>(threadIdx.x); i < planes_.groups * kPieces;
         i += static_cast<int>(blockDim.x)) {
      const int group = i / kPieces;
      const int piece = i % kPieces;
      const QuadGroup& quad =
          memory_.quads[PlaceOfQuad(row_ / kStatesOfQuad, group, planes_.groups)];
      NearGroup& to = state_[group];
      if (piece == kPieces - 1) {
        to.constants = quad.constants[state];
        continue;
      }
      const auto* const words = reinterpret_cast<const uint4*>(quad.elements[piece / 2]);
      (piece % 2 == 0 ? to.high : to.low)[piece / 2] = words[2 * state + piece % 2];
    }
  }

  // The terms of two tokens, at `slot` and the next slot. By a warp.
  __device__ void AddTerms(int32_t first, int32_t second, int slot) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int quarter = lane % 4;
    const int32_t ids[2] = {first, second};
#pragma unroll 2
    for (int base = 0; base < planes_.groups; base += kWarpSize / 4) {
      const int group = base + lane / 4;
      const bool is_there = group < planes_.groups;
      uint4 codes[2] = {};
      if (is_there) {
#pragma unroll
        for (int t = 0; t < 2; ++t) {
          const int64_t at = int64_t{ids[t]} * planes_.groups + group;
          codes[t] = __ldg(planes_.low_codes + at * (kRowGroupBytes / 16) + quarter);
        }
      }
      const NearGroup& state = state_[is_there ? group : 0];
      const uint4 high[2] = {state.high[quarter], state.high[quarter + 4]};
      const uint4 low[2] = {state.low[quarter], state.low[quarter + 4]};
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        int32_t of_high = 0, of_low = 0;
        AddProducts(codes[t].x, high[0].x, high[1].x, low[0].x, low[1].x, of_high, of_low);
        AddProducts(codes[t].y, high[0].y, high[1].y, low[0].y, low[1].y, of_high, of_low);
        AddProducts(codes[t].z, high[0].z, high[1].z, low[0].z, low[1].z, of_high, of_low);
        AddProducts(codes[t].w, high[0].w, high[1].w, low[0].w, low[1].w, of_high, of_low);
        int32_t sum = of_high * 128 + of_low;  // sixteen times what it stands for
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (!is_there || quarter != 0) continue;
        const uint32_t scale = __ldg(planes_.low_scales + int64_t{ids[t]} * planes_.groups + group);
        terms_[(slot + t) * TermsOfToken(planes_.groups) + group] = {
            __fmaf_rn(__int2float_rn(sum), state.constants.scale, state.constants.dither),
            __uint_as_float(scale << 16)};
      }
    }
  }

  struct Interval {
    float score;
    float width;
  };
  // Of the token at `slot`, by a thread, after a barrier.
  __device__ Interval Of(int32_t id, int slot) const {
    const GroupTerm* const terms = terms_ + slot * TermsOfToken(planes_.groups);
    float sum = 0.0f, square = 0.0f;
#pragma unroll 4
    for (int group = 0; group < planes_.groups; ++group) {
      const GroupTerm term = terms[group];
      sum = __fmaf_rn(term.scale * 0x1p-4f, term.y, sum);
      square = __fmaf_rn(term.scale * term.scale, state_[group].constants.square, square);
    }
    const float score = memory_.scores[At(id)] + sum;
    return {score, HalfWidth(score, square, __ldg(planes_.low_errors + id), bound_)};
  }
  __device__ void Keep(int32_t id, const Interval& of) const {
    memory_.scores[At(id)] = of.score;
    memory_.widths[At(id)] = of.width;
  }

 private:
  __device__ int64_t At(int32_t id) const { return int64_t{row_} * planes_.tiles * kTileRows + id; }
  // Four bytes of codes: the halves of a byte are elements 64 apart. As codes of tensor cores do, a
  // code becomes sixteen times itself in two's complement.
  static __device__ void AddProducts(uint32_t codes, uint32_t first_high, uint32_t second_high,
                                     uint32_t first_low, uint32_t second_low, int32_t& of_high,
                                     int32_t& of_low) {
    const auto first = static_cast<int32_t>((codes << 4 & 0xf0f0f0f0u) ^ 0x80808080u);
    const auto second = static_cast<int32_t>((codes & 0xf0f0f0f0u) ^ 0x80808080u);
    of_high = __dp4a(first, static_cast<int32_t>(first_high), of_high);
    of_high = __dp4a(second, static_cast<int32_t>(second_high), of_high);
    of_low = __dp4a(first, static_cast<int32_t>(first_low), of_low);
    of_low = __dp4a(second, static_cast<int32_t>(second_low), of_low);
  }

  const PlanesArgument& planes_;
  const CertifiedWorkspace& memory_;
  const StepBound bound_;
  NearGroup* const state_;
  GroupTerm* const terms_;
  const int row_;
};

}  // namespace sluice::cuda
