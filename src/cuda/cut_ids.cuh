// A Cut with its ties resolved to ids, so that a test of any single token decides whether it is
// kept.
#pragma once

#include "cuda/radix_select.cuh"
#include "semantics/order.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

struct CutIds {
  float upper;
  float lower;
  int32_t first_at_upper;  // of the tokens equal to `upper`, those from this id on are kept
  int32_t last_at_lower;   // of the tokens equal to `lower`, those up to this id

  __device__ bool Keeps(float x, int32_t id) const {
    return (x < upper || (x == upper && id >= first_at_upper)) &&
           (x > lower || (x == lower && id <= last_at_lower));
  }
};

// The id of the n-th token, from 1 on, of value x, and INT32_MAX when there are fewer.
template <typename Slice>
__device__ int32_t IdOfTie(const Team& team, FindMemory& memory, const Slice& slice, float value,
                           int64_t n) {
  uint64_t ties = 0;
  slice.ForEach([&](float x, int) { ties += x == value ? 1 : 0; });
  if (static_cast<uint64_t>(n) > team.Sum(ties)) return INT32_MAX;
  const Found found = Find<Amount::kCount>(team, memory, static_cast<uint64_t>(n), [&](auto add) {
    slice.ForEach([&](float x, int id) {
      if (x == value) add(~static_cast<uint32_t>(id), 1u, 0u);
    });
  });
  return static_cast<int32_t>(~found.key);
}

// A Cut with a status, and one of another row, keeps what its fields say.
template <typename Slice>
__device__ CutIds ResolveTies(const Team& team, FindMemory& memory, const Slice& slice,
                              const Cut& cut) {
  CutIds ids{cut.upper, cut.lower, 0, -1};
  if (cut.ties_dropped > 0) {
    ids.first_at_upper = IdOfTie(team, memory, slice, cut.upper, int64_t{cut.ties_dropped} + 1);
  }
  if (cut.ties_kept > 0) {
    ids.last_at_lower = IdOfTie(team, memory, slice, cut.lower, cut.ties_kept);
  }
  return ids;
}

}  // namespace sluice::cuda
