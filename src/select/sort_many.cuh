// Sorts a list that is too long for a token a thread, by a block with a few tokens a thread.
#pragma once

#include <cub/block/block_merge_sort.cuh>
#include <type_traits>

#include "backend/row_launch.h"
#include "select/sorted_rules.cuh"

namespace sluice::cuda {

inline constexpr int kFewThreads = 512;
static_assert(kMostThreads == 2 * kFewThreads);

// Descending, by all threads of the block.
template <int kThreads, int kTokens>
__device__ ListedTokens SortMany(const ListedTokens& from) {
  using Sort = cub::BlockMergeSort<uint64_t, kThreads, kTokens>;
  using Memory = typename Sort::TempStorage;
  static_assert(sizeof(Memory) <= sizeof(TokenList::room));
  const int first = static_cast<int>(threadIdx.x) * kTokens;
  uint64_t mine[kTokens];  // those behind the list are 0, which goes to the end
#pragma unroll
  for (int e = 0; e < kTokens; ++e) mine[e] = first + e < from.size ? from.tokens[first + e] : 0;
  Sort(*reinterpret_cast<Memory*>(from.room)).Sort(mine, [](uint64_t a, uint64_t b) {
    return a > b;
  });
#pragma unroll
  for (int e = 0; e < kTokens; ++e) {
    if (first + e < from.size) from.tokens[first + e] = mine[e];
  }
  __syncthreads();
  return from;
}

// visit(the sorted tokens, how many of them a thread has: an integral constant). from: of at most
// kMostSortedTop tokens.
template <typename Visit>
__device__ auto WithSorted(const Team& block, const ListedTokens& from, Visit visit) {
  using Two = std::integral_constant<int, 2>;
  using Four = std::integral_constant<int, 4>;
  static_assert(kMostSortedTop == Two() * kMostThreads && kMostSortedTop == Four() * kFewThreads);
  if (block.threads() == kMostThreads) return visit(SortMany<kMostThreads, 2>(from), Two());
  if (from.size <= Two() * kFewThreads) return visit(SortMany<kFewThreads, 2>(from), Two());
  return visit(SortMany<kFewThreads, 4>(from), Four());
}

}  // namespace sluice::cuda
