// The message of a rank for a row that is drawn from everything: the few tokens of its slice that
// may win, and the slice's part of the Cut of all. One read of the slice, and another one of the
// warps that have such a token.
//
// A token's score is t + g, t = fl(x * scale) but for the row's maximum. 16 bits h of its noise are
// at hand (semantics/draw/noise.h): with u = U and U in [h, h + 1) / 2^16, g + log2(log2 e) lies in
// [log2((65535 - h) / (h + 1)), 16 - log2 h], because -ln(1 - u) is between u and u / (1 - u). The
// best lower end of the slice is a floor; tokens with an upper end that reaches it are scored by
// all of their noise, and those that come near the best of them are sent. How near: a maximum that
// is m octaves higher lowers all scores alike, but for roundings of m and t, below 0.0006 up to m =
// 1000; beyond, no token of the slice reaches the noise of the maximum itself.
#include "cuda/eight_noise.cuh"
#include "cuda/row_by_definition.cuh"
#include "cuda/token_list.cuh"
#include "draw/cuda/draw_row.cuh"
#include "parallel/cuda/device_shards.h"
#include "parallel/drawn_rows.h"
#include "semantics/row_status.h"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

constexpr int kMostScored = 512;

// The state of some tokens of a slice. Order keys; 0: there are none.
struct SlicePart {
  uint32_t most;
  uint32_t least;  // its complement
  uint32_t ties;   // that equal it
  uint32_t count;  // that are not masked
  uint32_t floor;  // of their scores
  uint32_t has_nan;
};

struct DrawsMemory {
  TeamMemory team;
  SelectParams params;
  NoiseKey key;
  float scale;
  SlicePart of_warps[kMostWarps];
  SlicePart of_blocks[kMostBlocks];
  // In the first block:
  uint32_t first;  // of the largest value's tokens, the complement of its id
  uint32_t scored;
  uint32_t sent;
  uint64_t tokens[kMostScored];
  float scores[kMostScored];
};

__device__ SlicePart MergedLanes(const SlicePart& lane) {
  SlicePart all;
  all.most = __reduce_max_sync(~0u, lane.most);
  all.least = __reduce_max_sync(~0u, lane.least);
  all.ties = __reduce_add_sync(~0u, lane.least == all.least ? lane.ties : 0);
  all.count = __reduce_add_sync(~0u, lane.count);
  all.floor = __reduce_max_sync(~0u, lane.floor);
  all.has_nan = __reduce_or_sync(~0u, lane.has_nan);
  return all;
}

// Merges over the team, in all threads: each block hears from all others, after one Sync.
__device__ SlicePart MergedTeam(const Team& team, const SlicePart& thread, DrawsMemory& memory) {
  const SlicePart warp = MergedLanes(thread);
  const int warps = team.threads() / kWarpSize;
  if (team.lane() == 0) memory.of_warps[team.thread() / kWarpSize] = warp;
  team.SyncBlock();
  if (team.thread() < kWarpSize) {
    const SlicePart block =
        MergedLanes(team.lane() < warps ? memory.of_warps[team.lane()] : SlicePart{});
    team.AwaitStarted();
    if (team.lane() < team.blocks()) {
      *team.Of(team.lane(), memory.of_blocks + team.rank()) = block;
    }
  } else {
    team.AwaitStarted();
  }
  team.Sync();
  return MergedLanes(team.lane() < team.blocks() ? memory.of_blocks[team.lane()] : SlicePart{});
}

// The 16-bit fields of noise of eight tokens, as floats. kIsAligned: the slice begins where eight
// tokens share a block of noise.
template <DType kDType, bool kIsAligned>
class SliceNoise {
 public:
  using Tokens = Eight<kDType>;

  __device__ SliceNoise(const NoiseKey& key, int32_t first_id)
      : key_(key), stream_(semantics::GumbelStream(key)), first_id_(first_id) {}

  __device__ void Fields(const Tokens& tokens, float (&field)[Tokens::kTokens]) const {
    if constexpr (kIsAligned) {
      Tokens global = tokens;
      global.first += first_id_;
      const semantics::Block noise = NoiseOfEight(global, KeyAgain(key_), stream_);
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) field[e] = FieldAsFloat(noise, e) - 0x1p23f;
    } else {
#pragma unroll
      for (int e = 0; e < Tokens::kTokens; ++e) {
        const int32_t id = first_id_ + Tokens::Id(tokens.first, e);
        field[e] = static_cast<float>(semantics::NoiseHigh(KeyAgain(key_), stream_, id));
      }
    }
  }
  __device__ float Gumbel(int32_t id) const {
    return semantics::Gumbel(semantics::NoiseBits(key_, stream_, id));
  }

 private:
  const NoiseKey& key_;
  semantics::Stream stream_;
  int32_t first_id_;
};

// The ends of a score but for log2(log2 e).
__device__ inline float UpperEnd(float t, float field) { return t + 16.0f - __log2f(field); }
__device__ inline float LowerEnd(float t, float field) {
  return t + __log2f(__fdividef(65535.0f - field, field + 1.0f));
}

// Scores from here on may be the best.
__device__ inline float NearTo(float best) { return best - (0.01f + fabsf(best) * 0x1p-20f); }

struct SliceRead {
  SlicePart part;
  float upper;  // the largest upper end of a score
};

template <DType kDType, bool kIsAligned>
__device__ SliceRead ReadSlice(const VectorSlice<kDType>& slice, FirstVectors& loaded,
                               const SliceNoise<kDType, kIsAligned>& noise, float scale) {
  using Tokens = Eight<kDType>;
  float largest = -INFINITY, lowest = INFINITY, upper = -INFINITY, lower = -INFINITY;
  uint32_t count = 0, ties = 0;
  bool has_nan = false;
  slice.Stream(loaded, [&](const Tokens& tokens) {
    float field[Tokens::kTokens];
    noise.Fields(tokens, field);
    float upper_of_eight = -INFINITY, t_of_best = -INFINITY, field_of_best = 0.0f;
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      const float x = tokens.x[e];
      const bool is_there = x > -INFINITY;
      largest = fmaxf(largest, x);
      has_nan |= semantics::IsNan(x);
      count += is_there ? 1 : 0;
      ties = is_there && x < lowest ? 0 : ties;
      lowest = is_there ? fminf(lowest, x) : lowest;
      ties += x == lowest ? 1 : 0;
      const float t = x * scale;
      const float end = UpperEnd(t, field[e]);
      const bool is_best = end > upper_of_eight;
      upper_of_eight = is_best ? end : upper_of_eight;
      t_of_best = is_best ? t : t_of_best;
      field_of_best = is_best ? field[e] : field_of_best;
    }
    upper = fmaxf(upper, upper_of_eight);
    lower = fmaxf(lower, LowerEnd(t_of_best, field_of_best));
  });
  const bool is_there = count > 0;
  return {{is_there ? semantics::OrderKey(largest) : 0, is_there ? ~semantics::OrderKey(lowest) : 0,
           is_there ? ties : 0, count, semantics::OrderKey(lower), has_nan ? 1u : 0u},
          upper};
}

// By all lanes of a warp: scores its tokens that reach the floor, and finds the first one of the
// largest value.
template <DType kDType, bool kIsAligned>
__device__ void ScoreSlice(const VectorSlice<kDType>& slice,
                           const SliceNoise<kDType, kIsAligned>& noise, float scale, float floor,
                           float largest, int32_t first_id, DrawsMemory& first_block) {
  using Tokens = Eight<kDType>;
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Tokens& tokens) {
    float field[Tokens::kTokens];
    noise.Fields(tokens, field);
    uint32_t wanted = 0;
    bool has_largest = false;
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      const float x = tokens.x[e];
      wanted |= x > -INFINITY && UpperEnd(x * scale, field[e]) >= floor ? 1u << e : 0;
      has_largest |= x == largest;
    }
    if (has_largest) {
      // Ids rise with e and along the slice: the first is the one of the largest value in the row.
      int first = Tokens::kTokens - 1;
#pragma unroll
      for (int e = Tokens::kTokens - 1; e >= 0; --e) first = tokens.x[e] == largest ? e : first;
      const int32_t id = first_id + Tokens::Id(tokens.first, first);
      atomicMax(&first_block.first, ~static_cast<uint32_t>(id));
    }
    if (wanted == 0) return;
#pragma unroll 1
    for (; wanted != 0; wanted &= wanted - 1) {
      const int e = __ffs(static_cast<int>(wanted)) - 1;
      float x = tokens.x[0];
#pragma unroll
      for (int i = 1; i < Tokens::kTokens; ++i) x = i == e ? tokens.x[i] : x;
      const int32_t id = first_id + Tokens::Id(tokens.first, e);
      const uint32_t place = atomicAdd(&first_block.scored, 1u);
      if (place >= kMostScored) continue;
      first_block.tokens[place] = KeyOfToken(x, id);
      first_block.scores[place] = x * scale + noise.Gumbel(id);
    }
  });
}

// By the first block: the row's message.
__device__ void WriteReport(const Team& block, DrawsMemory& memory, const SlicePart& slice,
                            const ShardArgument& argument, int row) {
  std::byte* const message = argument.memory.own_reports + row * ReportBytes(argument.candidates);
  uint64_t* const tokens = reinterpret_cast<uint64_t*>(message + sizeof(DeviceDrawReport));
  const float largest = semantics::ValueOfKey(slice.most);
  RowStatus status = RowStatus::kOk;
  if (slice.has_nan != 0) status = semantics::Worse(status, RowStatus::kNanInput);
  if (slice.count > 0 && largest == INFINITY) {
    status = semantics::Worse(status, RowStatus::kPosInfInput);
  }
  const bool is_there = status == RowStatus::kOk && slice.count > 0;
  const int scored = is_there ? static_cast<int>(min(memory.scored, kMostScored + 0u)) : 0;
  uint64_t best = 0;
  for (int i = block.thread(); i < scored; i += block.threads()) {
    best = max(best, uint64_t{semantics::OrderKey(memory.scores[i])});
  }
  best = block.MaxOfBlock(best);
  const float floor = NearTo(semantics::ValueOfKey(static_cast<uint32_t>(best)));
  // A maximum that scales to infinity leaves nothing to compare.
  bool is_complete = memory.scored <= kMostScored && fabsf(floor) < INFINITY;
  for (int i = block.thread(); i < scored; i += block.threads()) {
    const uint64_t token = memory.tokens[i];
    if (!(memory.scores[i] >= floor) || ~static_cast<uint32_t>(IdOf(token)) == memory.first) {
      continue;
    }
    const int place = 1 + static_cast<int>(atomicAdd(&memory.sent, 1u));
    if (place < argument.candidates) tokens[place] = token;
  }
  block.SyncBlock();
  is_complete = is_complete && memory.sent < argument.candidates + 0u;
  const int sent = !is_there ? 0 : is_complete ? 1 + static_cast<int>(memory.sent) : 1;
  for (int i = sent + block.thread(); i < argument.candidates; i += block.threads()) tokens[i] = 0;
  if (block.thread() != 0) return;
  if (is_there) {
    tokens[0] = KeyOfToken(largest, static_cast<int32_t>(~memory.first));
  }
  *reinterpret_cast<DeviceDrawReport*>(message) = {
      is_there ? slice.count : 0,
      is_there && !is_complete ? DeviceDrawReport::kIncomplete : slice.ties,
      static_cast<uint32_t>(status), slice.least};
}

template <DType kDType, bool kIsAligned>
__global__ void __launch_bounds__(kMostThreads)
    DrawsKernel(const __grid_constant__ ShardArgument argument) {
  __shared__ DrawsMemory memory;
  const Team team(memory.team);
  int row = TeamIndex(team);
  if (argument.rows_to_draw.places != nullptr) {
    if (row >= *argument.rows_to_draw.count) return;
    row = argument.rows_to_draw.places[row];
  }
  const VectorSlice<kDType> slice(team, argument.rows, row);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  if (team.thread() == 0) {
    memory.params = argument.rows.params[argument.rows.has_params_per_row ? row : 0];
    memory.key = argument.rows.keys[argument.rows.has_keys_per_row ? row : 0];
    memory.scale = semantics::ScalesOf(memory.params).draw;
    memory.first = memory.scored = memory.sent = 0;
  }
  team.SyncBlock();
  const bool is_drawn =
      IsDrawn(memory.params, memory.key, argument.rows.limits, argument.method, argument.vocab);
  if (team.IsFirstThread()) argument.memory.lengths[row] = is_drawn ? 0 : argument.rows.vocab;
  if (!is_drawn) return;
  team.ArriveStarted();
  const float scale = memory.scale;
  const SliceNoise<kDType, kIsAligned> noise(memory.key, argument.first_id);
  const SliceRead read = ReadSlice(slice, loaded, noise, scale);
  const SlicePart all = MergedTeam(team, read.part, memory);
  if (all.count > 0) {
    const float floor = NearTo(semantics::ValueOfKey(all.floor));
    const float largest = semantics::ValueOfKey(all.most);
    const bool has_one = read.upper >= floor || read.part.most == all.most;
    if (__any_sync(~0u, has_one)) {
      ScoreSlice(slice, noise, scale, floor, largest, argument.first_id, *team.Of(0, &memory));
    }
  }
  team.Sync();
  if (team.rank() == 0) WriteReport(team.Block(), memory, all, argument, row);
}

template <bool kIsAligned>
const void* KernelOf(DType dtype) {
  return ForDType(dtype, DrawsKernel<DType::kF32, kIsAligned>,
                  DrawsKernel<DType::kBf16, kIsAligned>, DrawsKernel<DType::kF16, kIsAligned>);
}

}  // namespace

void LaunchDraws(const ShardArgument& argument, DType dtype, void* stream) {
  ShardArgument copy = argument;
  const bool is_aligned = argument.first_id % 8 == 0;
  const void* kernel = is_aligned ? KernelOf<true>(dtype) : KernelOf<false>(dtype);
  LaunchOverRows({kernel, ShapeForRows(argument.rows.rows), 0}, argument.rows.rows, &copy, stream);
}

}  // namespace sluice::cuda
