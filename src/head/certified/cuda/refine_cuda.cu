// Strict planes between their scores and the survivors: a second plane narrows the intervals of the
// tokens that may matter, some sixteenfold, and the survivors' kernel finds few.
//
// Lower ends by the first plane say little where intervals are wide. So first one block per row
// reads the second plane for the likeliest tokens, as many as the row needs; what they reach for
// certain is what the others must reach. Then the whole device goes through the tokens that may,
// reads the second plane for them and keeps their intervals and the ends of their tiles. Nothing is
// decided here: whichever tokens are narrowed, by whatever rule, all intervals hold.
#include <algorithm>

#include "cuda/cuda_check.h"
#include "head/certified/cuda/low_plane.cuh"
#include "head/certified/cuda/tile_keys.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kThreadsOfTile = 4;
constexpr int kTilesAtOnce = kThreads / kThreadsOfTile;
constexpr int kTokensOfThread = kTileRows / kThreadsOfTile;
constexpr int kMostListed = kTilesAtOnce * kTileRows;
// Rows that need more tokens read and narrow nothing; nor do rows with more tokens as likely as
// those, which a block would read one after the other.
constexpr int kLargestProbedK = 512;
constexpr int kMostProbed = 640;
// Weights below 2^-24 of the last needed token's: all of them are less of a nucleus than is
// uncertain of a few wider ones.
constexpr float kLeastOfNucleus = 24.0f;

// Lies before the hidden state and the terms.
struct alignas(16) RefineMemory {
  TeamMemory team;
  uint32_t count;
  uint32_t least;
  uint32_t best;
  int32_t list[kMostListed];
};
static_assert(kMostProbed <= kMostListed);

struct RefineArgument {
  CertifiedArgs call;
  int slots;  // tokens for which the terms have room; even
};

__device__ NearGroup* StateIn(RefineMemory& memory) {
  return reinterpret_cast<NearGroup*>(&memory + 1);
}
__device__ LowPlane PlaneIn(RefineMemory& memory, const CertifiedArgs& call, int row) {
  NearGroup* const state = StateIn(memory);
  return {call, row, state, reinterpret_cast<GroupTerm*>(state + call.planes.groups)};
}

// The intervals of the listed tokens by both planes, each to a thread.
template <typename Take>
__device__ void ForEachRefined(const LowPlane& plane, const int32_t* list, int count, int slots,
                               Take take) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (int first = 0; first < count; first += slots) {
    const int size = min(slots, count - first);
#pragma unroll 1
    for (int i = 2 * warp; i < size; i += 2 * kWarps) {
      plane.AddTerms(list[first + i], list[first + min(i + 1, size - 1)], i);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
      const int32_t id = list[first + i];
      take(id, plane.Of(id, i));
    }
    __syncthreads();
  }
}

// Between the ends of a tile: of its likeliest token, mostly. Of ends that are not finite -inf.
__device__ float MiddleOf(float least, float most) {
  return least > -INFINITY && most < INFINITY ? 0.5f * least + 0.5f * most : -INFINITY;
}

// The likeliest token of a tile, by its score or its score in a draw; -1: none has an end. By a
// warp.
__device__ int32_t LikeliestOfTile(const CertifiedArgs& call, const RowProgress& progress, int row,
                                   int tile, bool is_draw) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int id = tile * kTileRows + lane % kTileRows;
  const int64_t at = int64_t{row} * call.planes.tiles * kTileRows + id;
  const float score = call.memory.scores[at];
  const float width = call.memory.widths[at];
  const bool is_open = width != 0.0f && width < INFINITY;
  const float value =
      is_draw ? __fmaf_rn(score, progress.draw_scale, NoiseOf(progress, id)) : score;
  const uint32_t key = is_open ? semantics::OrderKey(value) : 0;
  const uint32_t most = __reduce_max_sync(~0u, key);
  if (most == 0) return -1;
  const int place = __ffs(static_cast<int>(__ballot_sync(~0u, key == most))) - 1;
  return tile * kTileRows + place % kTileRows;
}

// The tile with the largest middle of all, to all threads; -1: no tile has one.
template <typename Middle>
__device__ int32_t LikeliestTile(const Team& block, int tiles, Middle middle) {
  uint64_t best = 0;
#pragma unroll 8
  for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kThreads) {
    const float x = middle(tile);
    if (!(x > -INFINITY)) continue;
    best = max(best, uint64_t{semantics::OrderKey(x)} << 32 | static_cast<uint32_t>(~tile));
  }
  best = block.Max(best);
  return best == 0 ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(best));
}

// The likeliest tokens of a row: as many as the row needs or more, or none. To all threads.
__device__ int ListLikeliest(const CertifiedArgs& call, const RowProgress& progress, int row,
                             RefineMemory& memory) {
  const Team block = Team(memory.team).Block();
  const int tiles = call.planes.tiles;
  const int64_t at = int64_t{row} * tiles;
  auto middle_of = [&](int tile) {
    return MiddleOf(call.memory.tile_least[at + tile], call.memory.tile_most[at + tile]);
  };
  int32_t* const list = memory.list;
  int count = 0;
  int draws = 0;  // at the end of the list
  if (progress.k == 1) {
    const int32_t tile = LikeliestTile(block, tiles, middle_of);
    if (tile < 0) return 0;
    const int32_t of_draw =
        progress.filter_class == FilterClass::kSoftmax
            ? LikeliestTile(block, tiles,
                            [&](int t) {
                              return MiddleOf(call.memory.tile_least_scores[at + t],
                                              call.memory.tile_most_scores[at + t]);
                            })
            : -1;
    if (threadIdx.x == 0) list[0] = tile, list[1] = of_draw;
    draws = of_draw < 0 ? 0 : 1;
    count = 1 + draws;
    __syncthreads();
  } else {
    float* const middles = call.memory.tile_middles + at;
#pragma unroll 8
    for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kThreads) {
      middles[tile] = middle_of(tile);
    }
    __syncthreads();
    const uint32_t least = KeyOfRank(TileKeys<kThreads>(middles, tiles), progress.k, block);
    if (least <= semantics::OrderKey(-INFINITY)) return 0;
#pragma unroll 8
    for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kThreads) {
      if (semantics::OrderKey(middles[tile]) < least) continue;
      const uint32_t place = atomicAdd(&memory.count, 1u);
      if (place < kMostListed) list[place] = tile;
    }
    __syncthreads();
    count = static_cast<int>(memory.count);
    if (count < progress.k || count > kMostProbed) return 0;
  }
  for (int i = static_cast<int>(threadIdx.x) / kWarpSize; i < count; i += kWarps) {
    const int32_t id = LikeliestOfTile(call, progress, row, list[i], i >= count - draws);
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) list[i] = id;
  }
  __syncthreads();
  return count;
}

__global__ void __launch_bounds__(kThreads, 1)
    ProbeKernel(const __grid_constant__ RefineArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<RefineMemory*>(shared);
  LetNextKernelStart();
  AwaitKernelBefore();
  const CertifiedArgs& call = argument.call;
  const int row = static_cast<int>(blockIdx.x);
  const RowProgress& progress = call.memory.progress[row];
  const bool is_one = progress.k == 1;
  const bool is_probed = progress.way == RowProgress::Way::kPlanes && progress.k <= kLargestProbedK;
  if (threadIdx.x == 0) {
    memory.count = 0;
    memory.least = is_one ? 0 : ~0u;
    memory.best = 0;
  }
  const LowPlane plane = PlaneIn(memory, call, row);
  if (is_probed) plane.CopyState();
  __syncthreads();
  const int count = is_probed ? ListLikeliest(call, progress, row, memory) : 0;
  if (count == 0) {
    if (threadIdx.x == 0) call.memory.probed[row] = {};
    return;
  }
  ForEachRefined(plane, memory.list, count, argument.slots,
                 [&](int32_t id, const LowPlane::Interval& interval) {
                   const Ends ends = EndsOf(interval.score, interval.width);
                   const uint32_t key = semantics::OrderKey(ends.lower);
                   if (!is_one) {
                     atomicMin(&memory.least, key);
                     return;
                   }
                   atomicMax(&memory.least, key);
                   if (progress.filter_class != FilterClass::kSoftmax || ends.lower == -INFINITY) {
                     return;
                   }
                   const float score =
                       __fmaf_rn(ends.lower, progress.draw_scale, NoiseOf(progress, id));
                   atomicMax(&memory.best, semantics::OrderKey(score));
                 });
  if (threadIdx.x != 0) return;
  ProbedEnds probed = {memory.least, memory.best, count};
  if (is_one) {
    SureEnds& sure = call.memory.sure[row];
    probed.least = sure.least = max(sure.least, probed.least);
    probed.best = sure.best = max(sure.best, probed.best);
  }
  call.memory.probed[row] = probed;
}

// Which tokens are to be narrowed.
__device__ Threshold ThresholdOf(const RowProgress& progress, const ProbedEnds& probed) {
  Threshold near = NearThreshold(progress, {ValueOfEnd(probed.least), ValueOfEnd(probed.best)});
  // The tokens narrowed there bound how much all others weigh.
  if (progress.is_nucleus) near.least -= kLeastOfNucleus / progress.filter_scale;
  return near;
}

// Of a row a stretch of its tiles, of a thread a quarter of a tile at a time.
class Stretch {
 public:
  __device__ Stretch(const RefineArgument& argument, RefineMemory& memory, int row)
      : call_(argument.call),
        progress_(call_.memory.progress[row]),
        memory_(memory),
        plane_(PlaneIn(memory, call_, row)),
        near_(ThresholdOf(progress_, call_.memory.probed[row])),
        row_at_(int64_t{row} * call_.planes.tiles),
        row_(row),
        slots_(argument.slots) {}

  __device__ void Refine(int begin, int end) {
    bool has_state = false;
#pragma unroll 1
    for (int base = begin; base < end; base += kTilesAtOnce) {
      const int tile = base + static_cast<int>(threadIdx.x) / kThreadsOfTile;
      __syncthreads();  // no thread reads the last list any more
      if (threadIdx.x == 0) memory_.count = 0;
      __syncthreads();
      const uint32_t tokens = tile < end ? List(tile) : 0;
      __syncthreads();
      const auto count = static_cast<int>(memory_.count);
      // As many of a row as there would be if all tiles had as many as these.
      const int64_t of_row = int64_t{count} * call_.planes.tiles;
      const int64_t of_few = int64_t{call_.few_to_refine} * min(kTilesAtOnce, end - base);
      if (of_row < of_few || count == 0) continue;
      if (!has_state) plane_.CopyState();
      has_state = true;
      __syncthreads();
      ForEachRefined(plane_, memory_.list, count, slots_,
                     [&](int32_t id, const LowPlane::Interval& of) { plane_.Keep(id, of); });
      if (threadIdx.x == 0) atomicAdd(&call_.memory.probed[row_].refined, count);
      KeepEnds(tile, tile < end, tokens != 0);
    }
  }

 private:
  // Those of a thread: four neighbouring tokens of the row, from id on.
  struct Four {
    float score[kTokensOfThread];
    float width[kTokensOfThread];
    int32_t id;
  };
  __device__ Four FourOf(int tile) const {
    const int id =
        tile * kTileRows + static_cast<int>(threadIdx.x) % kThreadsOfTile * kTokensOfThread;
    const int64_t at = row_at_ * kTileRows + id;
    const float4 s = *reinterpret_cast<const float4*>(call_.memory.scores + at);
    const float4 w = *reinterpret_cast<const float4*>(call_.memory.widths + at);
    return {{s.x, s.y, s.z, s.w}, {w.x, w.y, w.z, w.w}, id};
  }

  // Lists the tokens of a thread that may matter; as bits.
  __device__ uint32_t List(int tile) const {
    const bool is_draw = near_.best < INFINITY;
    const bool may = call_.memory.tile_most[row_at_ + tile] >= near_.least ||
                     (is_draw && call_.memory.tile_most_scores[row_at_ + tile] >= near_.best);
    if (!may) return 0;
    const Four four = FourOf(tile);
    uint32_t tokens = 0;
#pragma unroll
    for (int e = 0; e < kTokensOfThread; ++e) {
      const Ends of = EndsOf(four.score[e], four.width[e]);
      bool matters = of.upper >= near_.least;
      if (!matters && is_draw &&
          __fmaf_rn(of.upper, progress_.draw_scale, kMostNoise) >= near_.best) {
        const float noise = NoiseOf(progress_, four.id + e);
        matters = __fmaf_rn(of.upper, progress_.draw_scale, noise) >= near_.best;
      }
      // What has no ends gets none from another plane.
      if (of.is_open && matters && four.width[e] < INFINITY) tokens |= 1u << e;
    }
    if (tokens == 0) return 0;
    uint32_t place = atomicAdd(&memory_.count, static_cast<uint32_t>(__popc(tokens)));
    for (uint32_t rest = tokens; rest != 0; rest &= rest - 1) {
      memory_.list[place++] = four.id + __ffs(static_cast<int>(rest)) - 1;
    }
    return tokens;
  }

  // The ends of a tile again, where a thread of it has narrowed an interval. By all threads.
  __device__ void KeepEnds(int tile, bool is_there, bool is_narrowed) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const uint32_t of_tile = 0xfu << lane / kThreadsOfTile * kThreadsOfTile;
    if (threadIdx.x == 0) memory_.least = memory_.best = 0;
    const bool is_new = (__ballot_sync(~0u, is_narrowed) & of_tile) != 0 && is_there;
    const bool is_draw = progress_.filter_class == FilterClass::kSoftmax;
    float least = -INFINITY, most = -INFINITY, least_score = -INFINITY, most_score = -INFINITY;
    if (is_new) {
      const Four four = FourOf(tile);
#pragma unroll
      for (int e = 0; e < kTokensOfThread; ++e) {
        const Ends of = EndsOf(four.score[e], four.width[e]);
        if (!of.is_open) continue;
        least = fmaxf(least, of.lower);
        most = fmaxf(most, of.upper);
        if (!is_draw) continue;
        const float noise = NoiseOf(progress_, four.id + e);
        least_score = fmaxf(least_score, __fmaf_rn(of.lower, progress_.draw_scale, noise));
        most_score = fmaxf(most_score, __fmaf_rn(of.upper, progress_.draw_scale, noise));
      }
    }
#pragma unroll
    for (int step = 1; step < kThreadsOfTile; step *= 2) {
      least = fmaxf(least, __shfl_xor_sync(~0u, least, step));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
      least_score = fmaxf(least_score, __shfl_xor_sync(~0u, least_score, step));
      most_score = fmaxf(most_score, __shfl_xor_sync(~0u, most_score, step));
    }
    __syncthreads();
    if (is_new && lane % kThreadsOfTile == 0) {
      call_.memory.tile_least[row_at_ + tile] = least;
      call_.memory.tile_most[row_at_ + tile] = most;
      atomicMax(&memory_.least, semantics::OrderKey(least));
      if (is_draw) {
        call_.memory.tile_least_scores[row_at_ + tile] = least_score;
        call_.memory.tile_most_scores[row_at_ + tile] = most_score;
        atomicMax(&memory_.best, semantics::OrderKey(least_score));
      }
    }
    __syncthreads();
    if (progress_.k > 1 || threadIdx.x != 0) return;
    atomicMax(&call_.memory.sure[row_].least, memory_.least);
    if (is_draw) atomicMax(&call_.memory.sure[row_].best, memory_.best);
  }

  const CertifiedArgs& call_;
  const RowProgress& progress_;
  RefineMemory& memory_;
  const LowPlane plane_;
  const Threshold near_;
  const int64_t row_at_;
  const int row_;
  const int slots_;
};

__global__ void __launch_bounds__(kThreads, 2)
    RefineKernel(const __grid_constant__ RefineArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  LetNextKernelStart();
  AwaitKernelBefore();
  const CertifiedArgs& call = argument.call;
  const int row = static_cast<int>(blockIdx.y);
  if (call.memory.progress[row].way != RowProgress::Way::kPlanes) return;
  if (call.memory.probed[row].least == 0) return;
  const auto blocks = static_cast<int64_t>(gridDim.x);
  const auto begin = static_cast<int>(blockIdx.x * int64_t{call.planes.tiles} / blocks);
  const auto end = static_cast<int>((blockIdx.x + 1) * int64_t{call.planes.tiles} / blocks);
  Stretch(argument, *reinterpret_cast<RefineMemory*>(shared), row).Refine(begin, end);
}

struct RefineShape {
  RefineArgument argument;
  size_t shared_bytes;
};

// Room for the terms of as many tokens as leave a processor two blocks, or of more where those are
// few.
RefineShape ShapeOf(const CertifiedArgs& call) {
  constexpr size_t kHalfOfProcessor = 110 * 1024;
  constexpr size_t kFewSlots = 2 * kWarps;
  constexpr size_t kMostSlots = 256;
  const size_t most = CurrentDeviceShape().most_shared_bytes;
  const size_t fixed =
      sizeof(RefineMemory) + sizeof(NearGroup) * static_cast<size_t>(call.planes.groups);
  const size_t of_slot = sizeof(GroupTerm) * static_cast<size_t>(TermsOfToken(call.planes.groups));
  auto slots_in = [&](size_t bytes) {
    return bytes > fixed ? (bytes - fixed) / of_slot / 2 * 2 : 0;
  };
  size_t slots = std::min(slots_in(std::min(kHalfOfProcessor, most)), kMostSlots);
  if (slots < kFewSlots) slots = std::clamp(slots_in(most), size_t{2}, kFewSlots);
  return {{call, static_cast<int>(slots)}, fixed + slots * of_slot};
}

}  // namespace

void LaunchProbe(const CertifiedArgs& call, void* stream) {
  RefineShape shape = ShapeOf(call);
  LaunchDependent(reinterpret_cast<const void*>(ProbeKernel),
                  {.blocks = static_cast<unsigned>(call.memory.rows),
                   .threads = kThreads,
                   .shared_bytes = shape.shared_bytes},
                  &shape.argument, stream);
}

void LaunchRefine(const CertifiedArgs& call, void* stream) {
  RefineShape shape = ShapeOf(call);
  constexpr int kLeastTiles = 8;  // of a block: fewer say little of how many a row has
  const int most = 2 * CurrentDeviceShape().processors;
  const int blocks =
      std::clamp(most / call.memory.rows, 1, std::max(1, call.planes.tiles / kLeastTiles));
  LaunchDependent(reinterpret_cast<const void*>(RefineKernel),
                  {.blocks = static_cast<unsigned>(blocks),
                   .blocks_y = static_cast<unsigned>(call.memory.rows),
                   .threads = kThreads,
                   .shared_bytes = shape.shared_bytes},
                  &shape.argument, stream);
}

}  // namespace sluice::cuda
