// Log-probabilities and logits as the model gave them, which do not depend on the token that was
// drawn but for its rank, in two reads of the row: one finds the maximum and a threshold, another
// the mass and the few tokens above the threshold, and among those are nearly always the token and
// the list.
#pragma once

#include "cuda/long_mass_sum.cuh"
#include "cuda/row_by_definition.cuh"
#include "cuda/row_prologue.cuh"
#include "draw/cuda/likely_tokens.cuh"
#include "draw/cuda/row_report.cuh"

namespace sluice::cuda {

// At least this many are noted, so that the token is among them.
inline constexpr int kNoted = 64;
static_assert(kNoted <= kGroups);

// In shared memory.
struct RawMemory {
  RowPrologue start;
  uint32_t least;                // order key of what is noted
  uint64_t masses[kMostBlocks];  // of the first block
  LikelyMemory likely;           // of the first block: from all of the team
  uint32_t place;                // of another block's tokens among them
};

inline constexpr uint32_t kNanKey = ~0u;

// One read's result: the largest value, and a value that enough tokens reach. NaN: there is one.
struct Outline {
  float max;
  float least;
};

// By groups of threads: k of their largest values are k tokens.
template <DType kDType>
__device__ Outline OutlineOf(const Team& team, const VectorSlice<kDType>& vectors, int needed,
                             RawMemory& memory) {
  if (team.thread() == 0) memory.likely.count = memory.least = 0;
  BeginRow(team, memory.start);
  float largest = -INFINITY;
  bool has_nan = false;
  ForEachValue(vectors, [&](float x) {
    largest = fmaxf(largest, x);
    has_nan |= semantics::IsNan(x);
  });
  uint32_t key = has_nan ? kNanKey : semantics::OrderKey(largest);
  for (int step = 1; step < ThreadsOfGroup(team); step *= 2) {
    key = max(key, __shfl_xor_sync(~0u, key, step));
  }
  ShareLargest(team, key, memory.start, [] {});
  if (team.thread() < kGroups) {
    const uint32_t mine = memory.start.largest[team.thread()];
    int rank = 0;
#pragma unroll 8
    for (int g = 0; g < kGroups; ++g) {
      const uint32_t other = memory.start.largest[g];
      rank += other > mine || (other == mine && g < team.thread()) ? 1 : 0;
    }
    if (rank == needed - 1) memory.least = mine;
  }
  const OfGroups<uint32_t> of_groups(team, memory.start.largest);
  uint32_t most = of_groups.value[0];
#pragma unroll
  for (int i = 1; i < kGroupsALane; ++i) most = max(most, of_groups.value[i]);
  most = __reduce_max_sync(~0u, most);
  team.SyncBlock();
  return {most == kNanKey ? semantics::QuietNan() : semantics::ValueOfKey(most),
          fmaxf(semantics::ValueOfKey(memory.least), semantics::kLowestValue)};
}

// The mass of this thread's tokens; notes the tokens from `least` on.
template <bool kHasMass, DType kDType>
__device__ uint64_t MassOfRow(const VectorSlice<kDType>& vectors, const Outline& outline,
                              LikelyMemory& likely) {
  using Tokens = Eight<kDType>;
  auto note = [&](const Tokens& tokens) {
    if (!(tokens.Largest() >= outline.least)) return;
#pragma unroll
    for (int e = 0; e < Tokens::kTokens; ++e) {
      if (tokens.x[e] >= outline.least)
        NoteLikely(likely, tokens.x[e], Tokens::Id(tokens.first, e));
    }
  };
  if constexpr (kHasMass) {
    return MassOfSlice(vectors, outline.max, semantics::TemperatureScale(1.0f), note);
  } else {
    FirstVectors loaded;
    vectors.LoadFirst(loaded);
    vectors.Stream(loaded, note);
    return 0;
  }
}

// Sends what this block has noted to the first one: it reserves places there with one request,
// because the answer takes 1000 cycles. After a barrier that follows the last note.
__device__ inline void SendNoted(const Team& team, RawMemory& memory) {
  if (team.rank() == 0) return;
  LikelyMemory& first = *team.Of(0, &memory.likely);
  const uint32_t count = memory.likely.count;
  if (count == 0) return;
  if (team.thread() == 0) memory.place = atomicAdd(&first.count, count);
  team.SyncBlock();
  for (uint32_t i = threadIdx.x; i < min(count, uint32_t{kMostLikely}); i += blockDim.x) {
    const uint32_t place = memory.place + i;
    if (place < kMostLikely) first.tokens[place] = memory.likely.tokens[i];
  }
}

// The maximum with the sign that the definition gives a zero: that of the first of equal ones.
template <DType kDType>
__device__ float SignedMax(const Team& team, const RowSlice<kDType>& row, float max) {
  if (max != 0.0f) return max;
  uint32_t complement = 0;  // of the first id
  row.ForEach([&](float x, int id) {
    if (x == 0.0f) complement = ::max(complement, ~static_cast<uint32_t>(id));
  });
  return row.ValueOf(static_cast<int>(~static_cast<uint32_t>(team.Max(complement))));
}

// How many tokens are not below one. Vectors are filled up with masked values.
template <DType kDType>
__device__ uint64_t CountFrom(const Team& team, const VectorSlice<kDType>& vectors,
                              const RowSlice<kDType>& row, float sampled) {
  uint32_t count = 0;
  if (sampled > -INFINITY) {
    ForEachValue(vectors, [&](float x) { count += x >= sampled ? 1 : 0; });
  } else {
    row.ForEach([&](float x, int) { count += x >= sampled ? 1 : 0; });
  }
  return team.Sum(count);
}

// await_draw(): called by all threads before the token is read. By the team of a row with a
// report.
template <DType kDType, typename AwaitDraw>
__device__ void ReportRaw(const Team& team, RawMemory& memory, const LogprobsArgument& argument,
                          int index, const RowReport& report, AwaitDraw await_draw) {
  const int vocab = argument.rows.vocab;
  const VectorSlice<kDType> vectors(team, argument.rows, index);
  const RowSlice<kDType> row(team, RowOf(argument.rows, index), vocab);
  const LikelyRange range{INFINITY, semantics::kLowestValue, 0, INT32_MAX,
                          max(report.listed() - 1, 0)};
  const Outline outline = OutlineOf(team, vectors, max(range.wanted, kNoted), memory);
  const bool is_ok = outline.max > -INFINITY && outline.max < INFINITY;  // false for a NaN
  const bool has_mass = argument.mode == LogprobMode::kRawLogprobs && is_ok;
  const uint64_t mine = has_mass ? MassOfRow<true>(vectors, outline, memory.likely)
                                 : MassOfRow<false>(vectors, outline, memory.likely);
  const float max = has_mass ? SignedMax(team, row, outline.max) : 0.0f;
  const uint64_t of_block = team.SumOfBlock(mine);
  if (team.thread() == 0) *team.Of(0, memory.masses + team.rank()) = of_block;
  SendNoted(team, memory);
  team.Sync();
  ModeValue value{argument.mode, argument.rows.no_params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (has_mass && team.rank() == 0) {
    uint64_t mass = 0;
    for (int block = 0; block < team.blocks(); ++block) mass += memory.masses[block];
    value.normalizer = semantics::NormalizerOf(max, 1.0f, mass);
  }
  const int noted = static_cast<int>(team.Of(0, &memory.likely)->count);
  team.Sync();  // every thread has read it
  await_draw();

  const TokenResult drawn = report.Drawn();
  if (argument.step.requested == nullptr) team.Sync();  // what was drawn is written over
  if (drawn.id < 0) {
    if (team.rank() == 0) report.PutNothing(team);
    return;
  }
  const float sampled = row.ValueOf(drawn.id);
  const float logprob = value(sampled);  // known to the first block
  uint64_t rank = 0;
  if (noted <= kMostLikely && sampled >= outline.least) {
    if (team.rank() != 0) return;
    uint32_t count = 0;
    for (int i = team.thread(); i < noted; i += team.threads()) {
      count += ValueOf(memory.likely.tokens[i]) >= sampled ? 1 : 0;
    }
    rank = team.Block().Sum(count);
  } else {
    rank = CountFrom(team, vectors, row, sampled);
  }
  if (team.IsFirstThread()) report.Put(logprob, static_cast<int32_t>(rank));
  if (report.listed() == 0) return;
  if (team.rank() == 0) report.BeginList(team, drawn.id, logprob);
  if (range.wanted == 0) return;
  team.Block().SyncBlock();
  auto put = [&](int n, int32_t id) { report.PutListed(1 + n, id, value(row.ValueOf(id))); };
  if (noted > kMostLikely) {
    ListOneByOne(team, vectors, vocab, range, put);
  } else if (team.rank() == 0) {
    PutLikely(team, memory.likely, noted, range, put);
  }
}

}  // namespace sluice::cuda
