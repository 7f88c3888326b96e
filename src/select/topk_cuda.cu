// topk for scores on a GPU: guess, verify, refine.
//
// A row has a cluster of blocks. Each block marks the scores of its slice that reach a threshold
// (topk_guess.cuh, topk_verify.cuh); the marked scores go, in the order of their indices, to the
// list of the first block, which ranks them and writes the answer (topk_refine.cuh). One read of
// the row in the common case; what a few reads do not decide is left to topk_definition.cuh.
#include <algorithm>
#include <bit>

#include "backend/row_launch.h"
#include "select/topk_definition.cuh"
#include "select/topk_plan.h"
#include "select/topk_refine.cuh"
#include "select/topk_verify.cuh"
#include "semantics/topk_scores.h"
#include "sluice/cuda_topk.hpp"

namespace sluice::cuda {
namespace {

struct TopkArgument {
  const void* scores;
  int64_t stride_bytes;
  int32_t columns;
  int32_t k;
  const int32_t* lengths;  // null: all see all columns
  int32_t next_n;
  RowHint hint;  // of the first request
  bool uses_hint;
  bool sorted;
  int32_t capacity;
  int32_t words;  // of a plane of a block
  int32_t* indices;
  float* values;  // null: not wanted, and so on
  RowStatus* statuses;
  TopkWork* work;
};

// Behind it in dynamic shared memory: two planes of words, the list of candidates, the marked
// indices of this block; or DefinitionMemory.
struct TopkShared {
  TeamMemory team;
  union {
    VerifyMemory verify;
    RefineMemory refine;
  };
  uint32_t has_nan;  // of the first block
  alignas(16) unsigned char rest[16];
};

constexpr size_t kHeaderBytes = sizeof(TopkShared);

size_t SharedBytes(int64_t words, int64_t capacity) {
  const size_t fast = static_cast<size_t>(words) * 2 * sizeof(uint32_t) +
                      static_cast<size_t>(capacity) * (sizeof(uint64_t) + sizeof(int32_t));
  return kHeaderBytes + std::max(capacity == 0 ? 0 : fast, sizeof(DefinitionMemory));
}

template <DType kDType>
struct RowAnswer {
  using Element = typename ElementOf<kDType>::Type;

  const TopkArgument& argument;
  const Element* scores;
  int64_t row;

  __device__ void Put(int place, int32_t id, float x) const {
    const int64_t to = row * argument.k + place;
    argument.indices[to] = id;
    if (argument.values != nullptr) argument.values[to] = x;
  }
  // -0 stays -0.
  __device__ void PutIndex(int place, int32_t id) const {
    Put(place, id, argument.values != nullptr ? Widen<kDType>(__ldg(scores + id)) : 0.0f);
  }
  // By the first block: what is behind the indices that were found, and the rest of the answer.
  __device__ void Finish(const Team& block, int found, RowStatus status,
                         const TopkWork& work) const {
    for (int i = found + block.thread(); i < argument.k; i += block.threads()) {
      Put(i, -1, -INFINITY);
    }
    if (block.thread() != 0) return;
    if (argument.statuses != nullptr) argument.statuses[row] = status;
    if (argument.work != nullptr) argument.work[row] = work;
  }
};

// Sends what is marked to the list of the first block, in the order of indices. Behind it: a Sync.
template <DType kDType>
__device__ void SendMarked(const Team& team, const TiledRow<kDType>& row, const Verified& verified,
                           int32_t* indices, uint64_t* list, uint32_t* has_nan) {
  const WordRange range(team, row.words());
  uint64_t mine = 0;
  for (int w = range.first; w < range.end; ++w) {
    mine += static_cast<uint64_t>(__popc(verified.words[w]));
  }
  int place = static_cast<int>(team.SumBefore(mine));
  for (int w = range.first; w < range.end; ++w) {
    for (uint32_t left = verified.words[w]; left != 0; left &= left - 1) {
      indices[place++] = row.IndexOf(w, __ffs(static_cast<int>(left)) - 1);
    }
  }
  team.SyncBlock();
  uint64_t* const to = team.Of(0, list) + verified.before;
  for (int i = team.thread(); i < verified.mine; i += team.threads()) {
    const float x = row.ScoreAt(indices[i]);
    if (semantics::IsNan(x)) *team.Of(0, has_nan) = 1;
    to[i] = KeyOfToken(x, indices[i]);
  }
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    TopkKernel(const __grid_constant__ TopkArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  TopkShared& memory = *reinterpret_cast<TopkShared*>(shared);
  uint32_t* const planes = reinterpret_cast<uint32_t*>(shared + kHeaderBytes);
  const Team team(memory.team);
  if (team.thread() == 0) memory.has_nan = 0;
  team.ArriveStarted();

  const int64_t index = static_cast<int64_t>(blockIdx.x) / team.blocks();
  const int64_t request = index / argument.next_n;
  const RowAnswer<kDType> answer{
      argument,
      reinterpret_cast<const typename RowAnswer<kDType>::Element*>(
          static_cast<const char*>(argument.scores) + index * argument.stride_bytes),
      index};
  const int length = argument.lengths == nullptr ? argument.columns : argument.lengths[request];
  const bool is_valid = length >= 0 && length <= argument.columns;
  const int scores =
      argument.lengths == nullptr
          ? argument.columns
          : static_cast<int>(semantics::VisibleLength(
                length, argument.next_n, static_cast<int32_t>(index % argument.next_n)));
  team.AwaitStarted();
  TopkWork work{TopkWay::kCandidates, 0, 0, 0};
  if (!is_valid || scores == 0) {
    if (team.rank() == 0) {
      answer.Finish(team, 0, is_valid ? RowStatus::kOk : RowStatus::kBadParam, work);
    }
    return;
  }

  const int wanted = min(argument.k, scores);
  const TiledRow<kDType> row(team, answer.scores, scores);
  RowWish wish{wanted, row.MostWords(team) <= argument.words ? argument.capacity : 0,
               argument.uses_hint, argument.hint};
  wish.hint.indices += request * argument.hint.count;
  const Verified verified = Verify(team, memory.verify, row, wish, planes, planes + argument.words);
  work.way = verified.is_done ? verified.way : TopkWay::kDefinition;
  work.reads = static_cast<uint8_t>(verified.reads);
  if (verified.has_nan) {
    if (team.rank() == 0) answer.Finish(team, 0, RowStatus::kNanInput, work);
    return;
  }
  if (!verified.is_done) {
    team.Sync();  // of the memory that changes hands
    const RowStatus status = TopkByDefinition<kDType>(
        team, *reinterpret_cast<DefinitionMemory*>(planes), answer.scores, scores, wanted,
        argument.sorted, [&](int place, int id, float x) { answer.Put(place, id, x); });
    if (team.rank() == 0) {
      answer.Finish(team, status == RowStatus::kOk ? wanted : 0, status, work);
    }
    return;
  }

  uint64_t* const list = reinterpret_cast<uint64_t*>(planes + 2 * argument.words);
  int32_t* const indices = reinterpret_cast<int32_t*>(list + argument.capacity);
  team.SyncBlock();
  SendMarked(team, row, verified, indices, list, &memory.has_nan);
  team.Sync();
  if (team.rank() != 0) return;

  const Team block = team.Block();
  work.candidates = verified.total;
  if (memory.has_nan != 0) {
    answer.Finish(block, 0, RowStatus::kNanInput, work);
    return;
  }
  if (argument.sorted) {
    PutByRank(block, list, verified.total, wanted,
              [&](int place, uint64_t candidate) { answer.PutIndex(place, IdOf(candidate)); });
  } else {
    const ListCut cut =
        CutList(block, memory.refine, list, verified.total, static_cast<uint32_t>(wanted));
    work.rounds = static_cast<uint8_t>(cut.rounds);
    PutByIndex(block, list, verified.total, cut,
               [&](int place, uint64_t candidate) { answer.PutIndex(place, IdOf(candidate)); });
  }
  answer.Finish(block, wanted, RowStatus::kOk, work);
}

template <typename T>
T* Wanted(const DeviceArray<T>& array) {
  return array.size == 0 ? nullptr : array.data;
}

void CheckInput(const TopkInput& input) {
  CheckRows(input.scores, "scores");
  CheckInRange("k", input.k, 1, kMaxVocab);
  CheckInRange("next_n", input.next_n, 1, 1 << 16);
  const int64_t rows = input.scores.rows;
  if (rows % input.next_n != 0) {
    ThrowInvalid("scores.rows", ToText(rows),
                 "a multiple of next_n, " + ToText(int64_t{input.next_n}));
  }
  const int64_t requests = rows / input.next_n;
  CheckOneARow("lengths", input.lengths, requests, true);
  CheckInRange("hint_columns", input.hint_columns, 0, kMaxVocab);
  CheckOneARow("hint", input.hint, requests * input.hint_columns);
}

}  // namespace

void Topk(const TopkInput& input, const TopkOutput& output, void* stream, const TopkPlan* plan) {
  CheckInput(input);
  const int64_t rows = input.scores.rows;
  CheckOneARow("indices", output.indices, rows * input.k);
  CheckOneARow("values", output.values, rows * input.k, true);
  CheckOneARow("statuses", output.statuses, rows, true);
  CheckOneARow("work", output.work, rows, true);
  if (plan != nullptr) CheckPlan(*plan, input, SharedBytes);
  if (rows == 0) return;
  const TopkPlan chosen = plan != nullptr ? *plan : PlanTopk(input);
  const int64_t words = chosen.capacity == 0 ? 0 : WordsOfBlock(input.scores.vocab, chosen.blocks);
  TopkArgument argument{
      .scores = input.scores.data,
      .stride_bytes = input.scores.stride * static_cast<int64_t>(SizeOf(input.scores.dtype)),
      .columns = static_cast<int32_t>(input.scores.vocab),
      .k = input.k,
      .lengths = Wanted(input.lengths),
      .next_n = input.next_n,
      .hint = {Wanted(input.hint), input.hint_columns, input.hint_shift},
      .uses_hint = chosen.guess == TopkGuess::kHint && input.hint.size != 0,
      .sorted = input.sorted,
      .capacity = chosen.capacity,
      .words = static_cast<int32_t>(words),
      .indices = output.indices.data,
      .values = Wanted(output.values),
      .statuses = Wanted(output.statuses),
      .work = Wanted(output.work)};
  LaunchOverRows({ForDType(input.scores.dtype, TopkKernel<DType::kF32>, TopkKernel<DType::kBf16>,
                           TopkKernel<DType::kF16>),
                  {chosen.blocks, chosen.threads},
                  SharedBytes(words, chosen.capacity)},
                 rows, &argument, stream);
}

TopkPlan PlanTopk(const TopkInput& input) {
  CheckInput(input);
  return PlanFor(input, SharedBytes);
}

}  // namespace sluice::cuda
