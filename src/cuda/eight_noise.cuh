// The 16-bit fields of noise of eight tokens of a thread, by one Philox block: they share one, or
// the halves of two that two lanes share.
#pragma once

#include "cuda/vector_slice.cuh"
#include "semantics/draw/noise.h"

namespace sluice::cuda {

// The key, such that the compiler computes the keys of Philox's rounds where they are used: ten
// pairs of registers are too many for it to keep, and it would keep them in memory.
__device__ inline NoiseKey KeyAgain(const NoiseKey& key) {
  NoiseKey again = key;
  again.seed = static_cast<uint64_t>(Again(static_cast<uint32_t>(key.seed >> 32))) << 32 |
               Again(static_cast<uint32_t>(key.seed));
  return again;
}

// The block of noise of eight tokens that follow each other, by any of them.
__device__ inline semantics::Block NoiseAround(int id, const NoiseKey& key,
                                               semantics::Stream stream) {
  return semantics::NoiseBlock(key, stream, static_cast<uint32_t>(id) >> 3, 0);
}

// Half e % 2 of word e / 2 belongs to token e. By all lanes of a warp.
template <DType kDType>
__device__ semantics::Block NoiseOfEight(const Eight<kDType>& tokens, const NoiseKey& key,
                                         semantics::Stream stream) {
  if constexpr (Eight<kDType>::kVectors == 1) {
    return NoiseAround(tokens.first, key, stream);
  } else {
    // Neighbouring lanes have neighbouring fours: the even one computes the block of the first
    // vectors of both, the odd one that of the second.
    const bool is_odd = threadIdx.x % 2 != 0;
    const semantics::Block block =
        NoiseAround(Eight<kDType>::IdOfFirst(tokens.first, is_odd ? 1 : 0), key, stream);
    const uint32_t others0 = __shfl_xor_sync(~0u, is_odd ? block.word[0] : block.word[2], 1);
    const uint32_t others1 = __shfl_xor_sync(~0u, is_odd ? block.word[1] : block.word[3], 1);
    return is_odd ? semantics::Block{{others0, others1, block.word[2], block.word[3]}}
                  : semantics::Block{{block.word[0], block.word[1], others0, others1}};
  }
}

// 2^23 and the field of token e: a float without a conversion.
__device__ inline float FieldAsFloat(const semantics::Block& noise, int e) {
  return __uint_as_float(__byte_perm(noise.word[e / 2], 0x4b00u, e % 2 == 0 ? 0x5410 : 0x5432));
}

}  // namespace sluice::cuda
