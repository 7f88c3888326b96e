// Stages 10 to 15 on the sorted top of a row, a token a thread: semantics/select.h with the walks
// done by all threads at once. One block; the list is not longer than the block.
#pragma once

#include "select/top_list.cuh"
#include "semantics/min_p.h"
#include "semantics/noise.h"
#include "semantics/top_p.h"
#include "semantics/xtc.h"
#include "sluice/cut.hpp"

namespace sluice::cuda {

// Sorts sorted[0, size) into key[0, size), by ranks: the keys differ. size is at most the number of
// threads.
__device__ inline void SortTop(TopList& list, int size) {
  const int threads = static_cast<int>(blockDim.x);
  int width = 1;  // threads a key, so that one round is enough
  while (width < kWarpSize && 2 * width * size <= threads) width *= 2;
  const int mine = static_cast<int>(threadIdx.x) / width;
  const int part = static_cast<int>(threadIdx.x) % width;
  const uint64_t key = mine < size ? list.sorted[mine] : 0;
  int rank = 0;
  if (mine < size) {
#pragma unroll 4
    for (int other = part; other < size; other += width) rank += list.sorted[other] > key ? 1 : 0;
  }
  for (int step = width / 2; step > 0; step /= 2) rank += __shfl_xor_sync(~0u, rank, step);
  if (mine < size && part == 0) list.key[rank] = key;
  __syncthreads();
}

// What is kept of the sorted top: the tokens of the threads from `begin` to before `end`.
struct KeptTop {
  float x;      // this thread's token
  int32_t id;
  float max;    // of the row
  int begin;
  int end;

  __device__ bool IsMine() const {
    return static_cast<int>(threadIdx.x) >= begin && static_cast<int>(threadIdx.x) < end;
  }
};

// The list is sorted and holds the tokens that TokensNeeded asks for.
__device__ inline KeptTop SelectFromTop(const Team& team, const TopList& list, int size,
                                        const SelectParams& params, const NoiseKey& noise) {
  const int i = team.thread();
  KeptTop kept;
  kept.x = i < size ? ValueOf(list.key[i]) : -INFINITY;
  kept.id = i < size ? IdOf(list.key[i]) : -1;
  kept.max = ValueOf(list.key[0]);
  kept.begin = 0;
  kept.end = size;
  if (semantics::IsGreedy(params)) {
    kept.end = 1;
    return kept;
  }
  const Profile& profile = params.profile;
  const bool with_ties = profile.ties == Ties::kAll;
  const float scale = semantics::ScalesOf(params).filter;
  const uint64_t weight = semantics::Weight(kept.x, kept.max, scale);

  auto apply_min_p = [&] {
    const uint64_t least = semantics::Fixed40(params.min_p);
    kept.end = max(1, __syncthreads_count(i < kept.end && weight >= least));
  };
  auto end_with_ties = [&](int end, int limit) {
    const float last = ValueOf(list.key[end - 1]);
    return __syncthreads_count(i < limit && kept.x >= last);
  };

  if (params.min_p > 0 && profile.min_p_stage == MinPStage::kBeforeTopK) apply_min_p();
  if (params.top_k < kept.end) {
    kept.end = with_ties ? end_with_ties(params.top_k, kept.end) : params.top_k;
  }
  if (params.top_p < 1) {
    const uint64_t mine = i < kept.end ? weight : 0;
    const uint64_t before = team.SumBefore(mine);
    const uint64_t target = semantics::TargetMass(params.top_p, team.SumOfBlock(mine));
    const int end = max(1, __syncthreads_count(i < kept.end &&
                                               semantics::TopPKeeps(before, target,
                                                                    profile.top_p_boundary)));
    kept.end = with_ties ? end_with_ties(end, kept.end) : end;
  }
  if (params.min_p > 0 && profile.min_p_stage == MinPStage::kLast) apply_min_p();
  if (params.xtc_probability > 0 && semantics::XtcCoinFalls(noise, params.xtc_probability)) {
    const uint64_t mass = team.SumOfBlock(i < kept.end ? weight : 0);
    const semantics::uint128_t least = semantics::XtcLeast(params.xtc_threshold, mass);
    const int above = __syncthreads_count(i < kept.end && semantics::XtcCounts(weight, least));
    if (above >= 2) kept.begin = above - 1;
  }
  return kept;
}

__device__ inline Cut CutOfTop(const TopList& list, const KeptTop& kept, int size) {
  const int i = static_cast<int>(threadIdx.x);
  const float first = ValueOf(list.key[kept.begin]);
  const float last = ValueOf(list.key[kept.end - 1]);
  const int above_first = __syncthreads_count(i < size && kept.x > first);
  const int above_last = __syncthreads_count(i < size && kept.x > last);
  Cut cut;
  cut.count = kept.end - kept.begin;
  cut.lower = last;
  cut.ties_kept = kept.end - above_last;
  if (kept.begin > 0) {
    cut.upper = first;
    cut.ties_dropped = kept.begin - above_first;
  }
  return cut;
}

}  // namespace sluice::cuda
