// A bitonic sort in shared memory by one block.
#pragma once

#include "cuda/team.cuh"

namespace sluice::cuda {

// The least power of two that is not below `size`.
__device__ inline int PaddedSize(int size) { return size <= 1 ? 1 : 1 << (32 - __clz(size - 1)); }

// keys[0, size), descending; the keys from there to the padded size are overwritten. 0 is the least
// key.
template <class Block, typename Key>
__device__ void SortDescending(const Block& block, Key* keys, int size) {
  const int padded = PaddedSize(size);
  for (int i = size + block.thread(); i < padded; i += block.threads()) keys[i] = 0;
  block.SyncBlock();
#pragma unroll 1
  for (int length = 2; length <= padded; length *= 2) {
#pragma unroll 1
    for (int step = length / 2; step > 0; step /= 2) {
#pragma unroll 1
      for (int i = block.thread(); i < padded / 2; i += block.threads()) {
        const int lower = 2 * i - (i & (step - 1));
        const bool descends = (lower & length) == 0;
        const Key a = keys[lower], b = keys[lower + step];
        if ((a < b) == descends) {
          keys[lower] = b;
          keys[lower + step] = a;
        }
      }
      block.SyncBlock();
    }
  }
}

}  // namespace sluice::cuda
