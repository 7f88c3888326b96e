// From intervals to the exact logits of the tokens that may matter, by a team of blocks a row, each
// of which has a stretch of the tiles.
//
// Where the row needs one token, the scores' kernel has left the value it reaches for certain, and
// the tokens that may reach that are computed; where those are many, exact logits of the tiles that
// reach it come first, for they reach more. Where the row needs several, each block finds the same
// threshold by itself and computes first the tokens of its stretch that reach it for certain; the
// blocks exchange the least of their logits, and each computes what may matter next to them. Of
// strict planes refine_cuda.cu has narrowed intervals before.
#include <algorithm>

#include "cuda/cuda_check.h"
#include "head/certified/cuda/async_copy.cuh"
#include "head/certified/cuda/row_threshold.cuh"
#include "head/certified/cuda/tile_keys.cuh"
#include "head/cuda/dot_lanes.cuh"

namespace sluice::cuda {
namespace {

using Way = RowProgress::Way;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;

constexpr int kTurns = 4;  // tiles of a thread that it looks at together
// Room for the tokens of one turn, whatever they are.
constexpr uint32_t kMostListed = kThreads * kTileRows;
// More are not computed before it is known that the row's budget has room for them.
constexpr uint32_t kFew = 512;
// If more tokens than this may be the one that the row needs, a block first uses the best tiles for
// a nearer threshold. On an H200 with 32 states at 3d9ad70, without that, 93 of a listing (151936 x
// 1024) took less time than with exact logits first, 101 us for 114, and 125 (262144 x 640) took
// more, 183 for 142.
constexpr uint32_t kMany = 7 * kWarps;
// A hidden state that is not longer is read from shared memory.
constexpr int kMostNearDim = 8192;

// Of the tokens that are computed first: order keys of their logits' ends, and how many they are.
struct FirstTokens {
  uint32_t least;
  uint32_t most;
  uint32_t count;
};

// Lies before the hidden state.
struct alignas(16) SurvivorsMemory {
  TeamMemory team;
  FirstTokens first;   // of this block
  FirstTokens of_all;  // of the team
  int best_tiles[2];   // by logits, by scores of a draw
  SureEnds of_best;    // what their exact logits say
  uint32_t count;
  uint32_t place;
  bool has_room;
  semantics::Token list[kMostListed];
};

// The tokens of a tile for which keeps(ends) holds, as bits. Unrolled, so it must be short:
// code that runs once comes from far.
template <typename Keeps>
__device__ uint32_t TokensOf(const CertifiedArgs& call, int row, int tile, Keeps keeps) {
  const int64_t at = (int64_t{row} * call.planes.tiles + tile) * kTileRows;
  const auto* scores = reinterpret_cast<const float4*>(call.memory.scores + at);
  const auto* widths = reinterpret_cast<const float4*>(call.memory.widths + at);
  uint32_t tokens = 0;
#pragma unroll
  for (int part = 0; part < kTileRows / 4; ++part) {
    const float4 s = scores[part];
    const float4 w = widths[part];
    const float score[4] = {s.x, s.y, s.z, s.w};
    const float width[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Ends ends = EndsOf(score[e], width[e]);
      tokens |= (ends.is_open && keeps(ends) ? 1u : 0u) << (part * 4 + e);
    }
  }
  return tokens;
}

// hidden: the row's, in shared memory where it is near.
template <DType kWeight, bool kIsAligned>
__device__ float LogitOf(const WeightsArgument& head, const float* near_hidden,
                         const float* far_hidden, int id) {
  using Weight = typename ElementOf<kWeight>::Type;
  const Weight* weight[1] = {static_cast<const Weight*>(head.weight) + id * head.stride};
  float sum[1][1][kLanesOfThread] = {};
  if (near_hidden != nullptr) {
    constexpr int kAtOnce = !kIsAligned ? 1 : kWeight == DType::kF32 ? 8 : 24;
    AddLanesNear<kWeight, kIsAligned, kAtOnce>(weight[0], near_hidden, head.dim, sum[0][0]);
  } else {
    const float* hidden[1] = {far_hidden};
    AddLanes<kWeight, DType::kF32, kIsAligned, kIsAligned ? 16 : 1>(weight, hidden, head.dim, sum);
  }
  const float dot = SumOfLanes(sum[0][0]);
  return head.bias == nullptr ? dot : dot + head.bias[id];
}

template <DType kWeight, bool kIsAligned>
class RowTokens {
 public:
  // near_hidden: null, or room for the row's hidden state, which is on its way there.
  __device__ RowTokens(const CertifiedArgs& call, const Team& team, SurvivorsMemory& memory,
                       int row, const float* near_hidden)
      : call_(call),
        progress_(call.memory.progress[row]),
        memory_(memory),
        near_hidden_(near_hidden),
        row_(row) {
    const int of_block = (call.planes.tiles + team.blocks() - 1) / team.blocks();
    begin_ = team.rank() * of_block;
    end_ = min(begin_ + of_block, call.planes.tiles);
  }

  // Computes the tokens of this block's tiles for which may_have(tile) holds, tokens_of(tile) as
  // bits. Of many it calls sharpen(), which returns whether both may say less from now on.
  // kIsFirst: keeps the ends of their logits, in the memory.
  template <bool kIsFirst, typename MayHave, typename TokensOfTile, typename Sharpen>
  __device__ void Compute(MayHave may_have, TokensOfTile tokens_of, Sharpen sharpen) const {
    int turns = kTurns;
#pragma unroll 1
    for (int base = begin_; base < end_;) {
      const uint32_t count = ListTurns(base, turns, may_have, tokens_of);
      if (count > kMany && sharpen()) continue;
      if (count > kMostListed) {
        turns = 1;
        continue;
      }
      if (count > 0) ComputeListed<kIsFirst>(count);
      base += turns * kThreads;
    }
  }

  // What the exact logits of the tiles that reach `sure` say of the one token that the row needs.
  // By all threads.
  __device__ SureEnds SureOfBestTiles(const Threshold& sure) const {
    static_assert(kWarps == kTileRows);
    constexpr int kNone = INT32_MAX;
    const bool is_draw = progress_.filter_class == FilterClass::kSoftmax;
    const int64_t at = int64_t{row_} * call_.planes.tiles;
    if (threadIdx.x == 0) {
      memory_.best_tiles[0] = memory_.best_tiles[1] = kNone;
      memory_.of_best = {};
    }
    AwaitCopies<0>();  // of the hidden state
    __syncthreads();
#pragma unroll 4
    for (int tile = static_cast<int>(threadIdx.x); tile < call_.planes.tiles; tile += kThreads) {
      if (call_.memory.tile_least[at + tile] == sure.least) {
        atomicMin(&memory_.best_tiles[0], tile);
      }
      if (is_draw && call_.memory.tile_least_scores[at + tile] == sure.best) {
        atomicMin(&memory_.best_tiles[1], tile);
      }
    }
    __syncthreads();
#pragma unroll 1
    for (const int tile : memory_.best_tiles) {
      if (tile == kNone) continue;
      const int id = tile * kTileRows + static_cast<int>(threadIdx.x) / kWarpSize;
      if (id >= call_.planes.vocab || IsMasked(call_, row_, id)) continue;
      const float x = Logit(id);
      if (threadIdx.x % kWarpSize != 0 || !(fabsf(x) < INFINITY)) continue;
      atomicMax(&memory_.of_best.least, semantics::OrderKey(x));
      if (!is_draw) continue;
      const float score = __fmaf_rn(x, progress_.draw_scale, NoiseOf(progress_, id));
      atomicMax(&memory_.of_best.best, semantics::OrderKey(score));
    }
    __syncthreads();
    return memory_.of_best;
  }

  // Adds the known mass of this block's tiles, where the weight is 1 at `unit`. Call it after
  // Compute. The sixteen of a tile are added in fp32 in four steps, everything else in fp64, so the
  // sums are off by 2^-22 in addition to each weight's error, whatever the number of tokens.
  __device__ void AddMass(float unit) const {
    const float scale = progress_.filter_scale;
    const float offset = -unit * scale;
    auto weight_of = [&](float x) { return Exp2Approx(__fmaf_rn(x, scale, offset)); };
    double of_lower = 0.0, of_upper = 0.0;
#pragma unroll 1
    for (int tile = begin_ + static_cast<int>(threadIdx.x); tile < end_; tile += kThreads) {
      const int64_t at = (int64_t{row_} * call_.planes.tiles + tile) * kTileRows;
      const auto* scores = reinterpret_cast<const float4*>(call_.memory.scores + at);
      const auto* widths = reinterpret_cast<const float4*>(call_.memory.widths + at);
      float lower[2] = {}, upper[2] = {};  // of halves
#pragma unroll
      for (int part = 0; part < kTileRows / 4; ++part) {
        const float4 s = scores[part];
        const float4 w = widths[part];
        lower[part / 2] += (weight_of(s.x - w.x) + weight_of(s.y - w.y)) +
                           (weight_of(s.z - w.z) + weight_of(s.w - w.w));
        upper[part / 2] += (weight_of(s.x + w.x) + weight_of(s.y + w.y)) +
                           (weight_of(s.z + w.z) + weight_of(s.w + w.w));
      }
      of_lower += static_cast<double>(lower[0] + lower[1]);
      of_upper += static_cast<double>(upper[0] + upper[1]);
    }
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      of_lower += __shfl_xor_sync(~0u, of_lower, step);
      of_upper += __shfl_xor_sync(~0u, of_upper, step);
    }
    if (threadIdx.x % kWarpSize != 0) return;
    atomicAdd(&progress_.least_mass, of_lower);
    atomicAdd(&progress_.most_mass, of_upper);
    progress_.mass_offset = offset;  // all blocks write the same value
  }

 private:
  // By a warp; the hidden state has come.
  __device__ float Logit(int32_t id) const {
    return LogitOf<kWeight, kIsAligned>(call_.head, near_hidden_,
                                        call_.memory.hidden + int64_t{row_} * call_.head.dim, id);
  }

  // Lists the tokens of some turns of tiles, as far as there is room; how many they are. To all
  // threads.
  template <typename MayHave, typename TokensOfTile>
  __device__ uint32_t ListTurns(int base, int turns, MayHave may_have,
                                TokensOfTile tokens_of) const {
    auto tile_of = [&](int turn) { return base + turn * kThreads + static_cast<int>(threadIdx.x); };
    uint32_t may = 0;  // turns, as bits: all their loads at once
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int tile = tile_of(turn);
      if (turn < turns && tile < end_ && may_have(tile)) may |= 1u << turn;
    }
    __syncthreads();  // no thread reads the last count any more
    if (threadIdx.x == 0) memory_.count = 0;
    __syncthreads();
#pragma unroll 1
    for (; may != 0; may &= may - 1) {
      const int tile = tile_of(__ffs(static_cast<int>(may)) - 1);
      uint32_t tokens = tokens_of(tile);
      if (tokens == 0) continue;
      uint32_t place = atomicAdd(&memory_.count, static_cast<uint32_t>(__popc(tokens)));
      for (; tokens != 0 && place < kMostListed; tokens &= tokens - 1) {
        memory_.list[place++].id = tile * kTileRows + __ffs(static_cast<int>(tokens)) - 1;
      }
    }
    __syncthreads();
    return memory_.count;
  }

  // What is listed. By all threads, which need not have met since.
  template <bool kIsFirst>
  __device__ void ComputeListed(uint32_t count) const {
    const bool is_many = count > kFew;
    const auto budget = static_cast<uint32_t>(call_.memory.budget);
    uint32_t first_place = 0;
    const bool is_counting = threadIdx.x == kThreads - 1;  // of the warp that has the least to do
    if (is_counting) {
      first_place =
          static_cast<uint32_t>(atomicAdd(&progress_.listed, static_cast<int32_t>(count)));
      if (is_many) memory_.has_room = first_place + count <= budget;
      if (kIsFirst) memory_.first.count += count;
    }
    AwaitCopies<0>();  // of the hidden state
    __syncthreads();
    if (is_many && !memory_.has_room) return;
    const int64_t row_at = int64_t{row_} * call_.planes.tiles * kTileRows;
#pragma unroll 1
    for (uint32_t i = threadIdx.x / kWarpSize; i < count; i += kWarps) {
      const int32_t id = memory_.list[i].id;
      const float x = Logit(id);
      if (threadIdx.x % kWarpSize != 0) continue;
      memory_.list[i].x = x;
      call_.memory.scores[row_at + id] = x;
      call_.memory.widths[row_at + id] = 0.0f;  // and it is not listed again
      // Their intervals have ends, so they are finite.
      if constexpr (kIsFirst) {
        atomicMin(&memory_.first.least, semantics::OrderKey(x));
        atomicMax(&memory_.first.most, semantics::OrderKey(x));
      }
      if (semantics::IsNan(x)) {
        progress_.has_nan = 1;
      } else if (x == INFINITY) {
        progress_.has_pos_inf = 1;
      } else if (x > -INFINITY) {
        progress_.has_finite = 1;
      }
    }
    if (is_counting) memory_.place = first_place;
    __syncthreads();
    const uint32_t place = memory_.place;
    semantics::Token* const to = call_.memory.survivors + int64_t{row_} * call_.memory.budget;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < count && place + i < budget; i += kThreads) {
      to[place + i] = memory_.list[i];
    }
    __syncthreads();
  }

  const CertifiedArgs& call_;
  RowProgress& progress_;
  SurvivorsMemory& memory_;
  const float* near_hidden_;
  int row_;
  int begin_;
  int end_;
};

// What the tokens that the row needs reach for certain. All blocks find the same value.
__device__ Threshold SureThreshold(const CertifiedArgs& call, const RowProgress& progress, int row,
                                   SurvivorsMemory& memory) {
  if (progress.k > 1) {
    const float* const ends = call.memory.tile_least + int64_t{row} * call.planes.tiles;
    return {ValueOfEnd(KeyOfRank(TileKeys<kThreads>(ends, call.planes.tiles), progress.k,
                                 Team(memory.team).Block()))};
  }
  const SureEnds sure = call.memory.sure[row];
  return {ValueOfEnd(sure.least), ValueOfEnd(sure.best)};
}

// Of the blocks of the team, after its Sync.
__device__ void Gather(const Team& team, SurvivorsMemory& memory) {
  if (threadIdx.x < kWarpSize) {
    const bool is_there = team.lane() < team.blocks();
    const FirstTokens first =
        is_there ? *team.Of(team.lane(), &memory.first) : FirstTokens{~0u, 0, 0};
    const FirstTokens of_all = {__reduce_min_sync(~0u, first.least),
                                __reduce_max_sync(~0u, first.most),
                                __reduce_add_sync(~0u, first.count)};
    if (threadIdx.x == 0) memory.of_all = of_all;
  }
  __syncthreads();
}

// The row's hidden state on its way to shared memory.
__device__ void CopyHidden(const CertifiedArgs& call, int row, float* to) {
  const int dim = call.planes.dim;
  const float* const from = call.memory.hidden + int64_t{row} * dim;
  if (dim % 4 == 0) {
    for (int i = static_cast<int>(threadIdx.x) * 4; i < dim; i += kThreads * 4) {
      StartCopy<16>(to + i, from + i);
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
      StartCopy<4>(to + i, from + i);
    }
  }
  CommitCopies();
}

template <DType kWeight, bool kIsAligned>
__global__ void __launch_bounds__(kThreads, 1)
    SurvivorsKernel(const __grid_constant__ CertifiedArgs call) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<SurvivorsMemory*>(shared);
  LetNextKernelStart();
  AwaitKernelBefore();
  const Team team(memory.team);
  const int row = static_cast<int>(blockIdx.x) / team.blocks();
  float* near_hidden = nullptr;
  if (call.planes.dim <= kMostNearDim) {
    static_assert(sizeof(SurvivorsMemory) % 16 == 0);
    near_hidden = reinterpret_cast<float*>(shared + sizeof(SurvivorsMemory));
    CopyHidden(call, row, near_hidden);
  }
  RowProgress& progress = call.memory.progress[row];
  const Way way = progress.way;
  if (way != Way::kPlanes && way != Way::kAllowed) {
    AwaitCopies<0>();
    return;
  }
  if (threadIdx.x == 0) memory.first = {~0u, 0, 0};
  const RowTokens<kWeight, kIsAligned> tokens(call, team, memory, row, near_hidden);
  const int64_t at = int64_t{row} * call.planes.tiles;
  const float* const ends = call.memory.tile_least + at;
  const float* const tops = call.memory.tile_most + at;
  const float* const top_scores = call.memory.tile_most_scores + at;
  Threshold sure, near;
  bool is_in_turns = false;
  bool may_sharpen = false;
  if (way == Way::kPlanes) {
    sure = SureThreshold(call, progress, row, memory);
    const bool is_known = sure.least > -INFINITY;  // else fewer tokens than needed have an end
    is_in_turns = is_known && ComputesSureTokensFirst(progress);
    may_sharpen = is_known && !is_in_turns;
    if (is_in_turns) {
      tokens.template Compute<true>([&](int tile) { return ends[tile] >= sure.least; },
                                    [&](int tile) {
                                      return TokensOf(call, row, tile, [&](const Ends& of) {
                                        return of.lower >= sure.least;
                                      });
                                    },
                                    [] { return false; });
      team.Sync();
      Gather(team, memory);
      team.ArriveStarted();  // and has read what the others have in their memory
      const bool has_first = memory.of_all.count > 0;
      float least = has_first ? semantics::ValueOfKey(memory.of_all.least) : -INFINITY;
      // Of intervals that were not narrowed none may reach what a second plane says of a token.
      if (call.memory.probed != nullptr && (has_first || !progress.is_nucleus)) {
        least = fmaxf(least, ValueOfEnd(call.memory.probed[row].least));
      }
      if (least > -INFINITY) near = NearThreshold(progress, {least});
      if (team.IsFirstThread()) {
        progress.first = static_cast<int32_t>(memory.of_all.count);
        // What is not below it is computed, all of it.
        progress.least_first = has_first ? semantics::OrderKey(least) : ~0u;
      }
      __syncthreads();
    } else if (is_known) {
      near = NearThreshold(progress, sure);
    }
  }
  const bool has_best = near.best < INFINITY;
  // Each block for itself: whatever the others do, nothing is left out that may matter.
  auto sharpen = [&] {
    if (!may_sharpen) return false;
    may_sharpen = false;
    const SureEnds exact = tokens.SureOfBestTiles(sure);
    if (exact.least == 0) return false;
    near.least = fmaxf(near.least, semantics::ValueOfKey(exact.least));
    if (has_best) near.best = fmaxf(near.best, SurelyBelow(semantics::ValueOfKey(exact.best)));
    return true;
  };
  tokens.template Compute<false>(
      [&](int tile) {
        return tops[tile] >= near.least || (has_best && top_scores[tile] >= near.best);
      },
      [&](int tile) {
        uint32_t tokens =
            TokensOf(call, row, tile, [&](const Ends& of) { return of.upper >= near.least; });
        if (!has_best) return tokens;
        uint32_t may_win = TokensOf(call, row, tile, [&](const Ends& of) {
          return __fmaf_rn(of.upper, progress.draw_scale, kMostNoise) >= near.best;
        });
#pragma unroll 1
        for (may_win &= ~tokens; may_win != 0; may_win &= may_win - 1) {
          const int place = __ffs(static_cast<int>(may_win)) - 1;
          const int64_t here = at * kTileRows + tile * kTileRows + place;
          const Ends of = EndsOf(call.memory.scores[here], call.memory.widths[here]);
          const float noise = NoiseOf(progress, tile * kTileRows + place);
          if (__fmaf_rn(of.upper, progress.draw_scale, noise) >= near.best) tokens |= 1u << place;
        }
        return tokens;
      },
      sharpen);
  AwaitCopies<0>();  // where nothing was computed
  if (is_in_turns && progress.is_nucleus) {
    tokens.AddMass(semantics::ValueOfKey(memory.of_all.most));
  }
  if (is_in_turns) team.AwaitStarted();
}

template <bool kIsAligned>
const void* KernelOf(DType dtype) {
  return dtype == DType::kF32
             ? reinterpret_cast<const void*>(SurvivorsKernel<DType::kF32, kIsAligned>)
         : dtype == DType::kBf16
             ? reinterpret_cast<const void*>(SurvivorsKernel<DType::kBf16, kIsAligned>)
             : reinterpret_cast<const void*>(SurvivorsKernel<DType::kF16, kIsAligned>);
}

}  // namespace

void LaunchCertifiedPrefix(const CertifiedArgs& call, void* stream) {
  LaunchEncode(call, stream);
  LaunchScore(call, stream);
  if (call.memory.probed != nullptr) {
    LaunchProbe(call, stream);
    LaunchRefine(call, stream);
  }
  const int rows = call.memory.rows;
  const bool is_aligned =
      call.head.stride % 4 == 0 && call.head.dim % 4 == 0 &&
      reinterpret_cast<uintptr_t>(call.head.weight) % (4 * SizeOf(call.dtype)) == 0;
  CertifiedArgs argument = call;
  // A block takes a processor, as near as it goes.
  const unsigned blocks = rows <= 8 ? 16 : rows <= 16 ? 8 : rows <= 32 ? 4 : rows <= 64 ? 2 : 1;
  LaunchDependent(
      is_aligned ? KernelOf<true>(call.dtype) : KernelOf<false>(call.dtype),
      {.blocks = static_cast<unsigned>(rows),
       .threads = kThreads,
       .shared_bytes = sizeof(SurvivorsMemory) +
                       (call.planes.dim <= kMostNearDim ? size_t{4} * call.planes.dim : size_t{0}),
       .cluster = blocks},
      &argument, stream);
}

void LaunchDense(const CertifiedArgs& call, void* stream) {
  ProjectListed(call.head, call.dtype,
                {call.memory.hidden, call.memory.dense_rows, &call.memory.counters->dense,
                 call.memory.scores, int64_t{call.planes.tiles} * kTileRows, call.bitmask},
                stream);
}

}  // namespace sluice::cuda
