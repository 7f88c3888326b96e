// topk for scores on a GPU: guess, verify, refine.
//
// A row has a block or a cluster of them. Each block marks the scores of its slice that reach a
// threshold (topk_guess.cuh, topk_verify.cuh), and writes its own part of the answer
// (topk_keep.cuh). What that does not decide goes, in the order of indices, to the list of the
// first block, which ranks it and writes the answer (topk_refine.cuh). One read of the row in the
// common case; what a few reads do not decide is left to topk_definition.cuh.
#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "cuda/row_launch.h"
#include "semantics/topk_scores.h"
#include "sluice/cuda/topk.hpp"
#include "topk/cuda/topk_definition.cuh"
#include "topk/cuda/topk_keep.cuh"
#include "topk/cuda/topk_refine.cuh"
#include "topk/cuda/topk_short.cuh"
#include "topk/cuda/topk_verify.cuh"
#include "topk/topk_plan.h"

namespace sluice::cuda {
namespace {

struct TopkArgument {
  const void* scores;
  int64_t stride_bytes;
  int32_t columns;
  int32_t k;
  const int32_t* lengths;  // null: all see all columns
  int32_t next_n;
  RowHint hint;  // of the first request, without its threshold; without indices: not to be used
  bool has_thresholds;  // to begin with
  bool sorted;
  int32_t capacity;
  int32_t words;         // of a plane of a block
  bool lets_next_start;  // at once; else when the row has been read
  int32_t* indices;
  float* values;  // null: not requested, and so on
  RowStatus* statuses;
  TopkWork* work;
  float* thresholds;
};

// Followed in dynamic shared memory by two planes of words and the list of candidates, or by
// DefinitionMemory.
struct TopkShared {
  TeamMemory team;
  ScanMemory scan;
  uint64_t listed;  // the barrier of the list, of the first block
  VerifyMemory verify;
  KeepMemory keep;
  RefineMemory refine;
  BinMemory bins;
  alignas(16) unsigned char end[16];
};

constexpr size_t kHeaderBytes = sizeof(TopkShared);

size_t SharedBytes(int64_t words, int64_t capacity) {
  const size_t fast = static_cast<size_t>(words) * 2 * sizeof(uint32_t) +
                      static_cast<size_t>(capacity) * sizeof(uint64_t);
  return kHeaderBytes + std::max(capacity == 0 ? 0 : fast, sizeof(DefinitionMemory));
}

// Where the answer of a row goes.
template <DType kDType>
struct RowAnswer {
  using Element = typename ElementOf<kDType>::Type;

  __device__ RowAnswer(const TopkArgument& argument, const Element* row, int64_t index)
      : scores(row),
        indices(argument.indices + index * argument.k),
        values(argument.values == nullptr ? nullptr : argument.values + index * argument.k) {}

  __device__ void Put(int place, int32_t id, float x) const {
    indices[place] = id;
    if (values != nullptr) values[place] = x;
  }
  __device__ void PutIndex(int place, int32_t id) const {
    indices[place] = id;
    if (values != nullptr) values[place] = Widen<kDType>(scores[id]);  // -0 stays -0
  }

  const Element* scores;
  int32_t* indices;
  float* values;  // null: not requested
};

// By the first block: the padding after the found indices, and the rest of the answer.
template <DType kDType>
__device__ void Finish(const Team& block, const TopkArgument& argument,
                       const RowAnswer<kDType>& answer, int index, int found, RowStatus status,
                       const TopkWork& work, float threshold) {
  for (int i = found + block.thread(); i < argument.k; i += block.threads()) {
    answer.Put(i, -1, -INFINITY);
  }
  if (block.thread() != 0) return;
  if (argument.statuses != nullptr) argument.statuses[index] = status;
  if (argument.work != nullptr) argument.work[index] = work;
  if (argument.thresholds != nullptr) argument.thresholds[index] = threshold;
}

// Puts what is marked into the list of the first block, in the order of indices. Blocks but the
// first are done then.
template <DType kDType>
__device__ void SendMarked(const Team& team, const TiledRow<kDType>& row, const TeamCount& count,
                           const uint32_t* words, uint64_t* list, uint64_t* listed) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const LongsOf of_first(0, list, listed);
#endif
  auto send = [&](int place, float x, int index) {
    const uint64_t candidate = KeyOfToken(x, index);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (team.rank() != 0) {
      of_first.Send(place, candidate);
      return;
    }
#endif
    list[place] = candidate;
  };
  ListMarked(team, row, count, words, list);  // to blocks that receive nothing
  team.SyncBlock();
  constexpr int kAtOnce = 4;  // loads in flight
  for (int first = team.thread(); first < count.mine; first += kAtOnce * team.threads()) {
    int index[kAtOnce];
    float x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int from = first + i * team.threads();
      index[i] = from < count.mine ? static_cast<int>(list[from]) : -1;
      x[i] = index[i] >= 0 ? row.ScoreAt(index[i]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (index[i] >= 0) send(count.before + first + i * team.threads(), x[i], index[i]);
    }
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() > 1 && team.rank() == 0) {
    if (team.thread() == 0) {
      ExpectBytes(listed, (count.total - count.mine) * static_cast<int>(sizeof(uint64_t)));
    }
    AwaitBarrier(listed, 0);
  }
#endif
  team.SyncBlock();
}

// A short row is its own list of candidates. Returns the range of its scores.
template <DType kDType>
__device__ KeyRange ListAll(const Team& block, ScanMemory& memory, const TiledRow<kDType>& row,
                            uint64_t* list) {
  KeyRange range;
  row.ForEachOfRow(block, [&](float x, int index) {
    list[index] = KeyOfToken(x, index);
    range.Add(ScoreKeyOf(list[index]));
  });
  BlockScan scan(block, memory);
  return scan.Range(range);
}

struct Refined {
  RowStatus status;
  TopkWork work;
};

// By the first block: the answer from the list of candidates. range: about that of their scores.
// memory.refine: zero. By value, so that nothing of the kernel is in local memory.
template <DType kDType>
__device__ __noinline__ Refined Refine(Team block, TopkShared& memory, RowAnswer<kDType> answer,
                                       uint64_t* list, int size, KeyRange range, int wanted,
                                       bool sorted) {
  Refined refined{RowStatus::kOk, {TopkWay::kCandidates, 0, 0, size}};
  auto put = [&](int place, uint64_t candidate) { answer.PutIndex(place, IdOf(candidate)); };
  bool is_ok = false;
  if (sorted) {
    is_ok = PutByRank(block, list, size, wanted, put);
  } else {
    BlockScan scan(block, memory.scan);
    const ListCut cut = CutList(block, scan, memory.refine, memory.bins, list, size, range,
                                static_cast<uint32_t>(wanted));
    refined.work.rounds = static_cast<uint8_t>(cut.rounds);
    is_ok = PutByIndex(block, scan, memory.refine, list, size, cut, put);
  }
  if (!is_ok) refined.status = RowStatus::kNanInput;
  return refined;
}

// As above for a list that is held in registers if that decides it. memory.bins: zero.
template <DType kDType>
__device__ Refined RefineHeld(const Team& block, TopkShared& memory,
                              const RowAnswer<kDType>& answer, uint64_t* list, int size,
                              KeyRange range, int wanted, bool sorted) {
  if (kDType != DType::kBf16 && !sorted && HeldList::Fits(block, size)) {
    const HeldList held(block, list, size);
    BlockScan scan(block, memory.scan);
    if (!range.IsKnown()) range = held.Range(scan);
    const Decision decision =
        held.Keep(block, scan, memory.refine, memory.bins, range, wanted,
                  [&](int place, uint64_t candidate) { answer.PutIndex(place, IdOf(candidate)); });
    if (decision != Decision::kUndecided) {
      return {decision == Decision::kNan ? RowStatus::kNanInput : RowStatus::kOk,
              {TopkWay::kCandidates, 0, 1, size}};
    }
    block.SyncBlock();
  }
  return Refine(block, memory, answer, list, size, range, wanted, sorted);
}

// The answer from all scores of the row.
template <DType kDType>
__device__ __noinline__ Refined RefineAll(Team block, TopkShared& memory, TiledRow<kDType> row,
                                          RowAnswer<kDType> answer, uint64_t* list, int wanted,
                                          bool sorted) {
  const KeyRange range = ListAll(block, memory.scan, row, list);
  block.SyncBlock();
  return Refine(block, memory, answer, list, row.Scores(), range, wanted, sorted);
}

// By one block: a row of no more scores than there is room for. short_memory: clear; of the list.
template <DType kDType>
__device__ __forceinline__ Refined TopkOfShortRow(const Team& block, TopkShared& memory,
                                                  ShortMemory& short_memory,
                                                  const TiledRow<kDType>& row,
                                                  const RowAnswer<kDType>& answer, uint64_t* list,
                                                  int wanted, bool sorted) {
  if (!sorted && ShortRow<kDType>::Fits(block, row)) {
    const ShortRow<kDType> held(block, row);
    const Short found =
        held.Keep(block, memory.scan, short_memory, row.Scores(), wanted,
                  [&](int place, int32_t id, float x) { answer.Put(place, id, x); });
    if (found != Short::kUndecided) {
      return {found == Short::kNan ? RowStatus::kNanInput : RowStatus::kOk,
              {TopkWay::kCandidates, 0, 1, row.Scores()}};
    }
    block.SyncBlock();
  }
  return RefineAll(block, memory, row, answer, list, wanted, sorted);
}

// The parameters of a row of the call.
template <DType kDType>
struct RowCall {
  using Element = typename ElementOf<kDType>::Type;

  __device__ RowCall(const TopkArgument& argument, int row)
      : index(row),
        request(argument.next_n == 1 ? row : row / argument.next_n),
        scores(reinterpret_cast<const Element*>(static_cast<const char*>(argument.scores) +
                                                row * argument.stride_bytes)),
        visible(argument.columns),
        status(RowStatus::kOk) {
    if (argument.lengths != nullptr) {
      const int length = argument.lengths[request];
      if (length < 0 || length > argument.columns) status = RowStatus::kBadParam;
      visible = static_cast<int>(
          semantics::VisibleLength(length, argument.next_n, index - request * argument.next_n));
    }
    wanted = status == RowStatus::kOk ? min(argument.k, visible) : 0;
  }

  int index;
  int request;
  const Element* scores;
  int visible;
  RowStatus status;
  int wanted;
};

// Rows that fit into a block's registers, one block of kMostThreads a row: nothing else slows a
// kernel that spends its time on its own instructions.
template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    ShortTopkKernel(const __grid_constant__ TopkArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  TopkShared& memory = *reinterpret_cast<TopkShared*>(shared);
  const Team block = Team(memory.team).Block();
  ShortMemory& short_memory = *reinterpret_cast<ShortMemory*>(shared + kHeaderBytes);
  short_memory.Clear(block);
  if (block.thread() == 0) memory.refine.Clear();
  AwaitKernelBefore();
  LetNextKernelStart();
  const RowCall<kDType> call(argument, static_cast<int>(blockIdx.x));
  const RowAnswer<kDType> answer(argument, call.scores, call.index);
  TopkWork work{TopkWay::kCandidates, 0, 0, 0};
  RowStatus status = call.status;
  if (call.wanted > 0) {
    const TiledRow<kDType> row(block, call.scores, call.visible);
    const Refined refined =
        TopkOfShortRow(block, memory, short_memory, row, answer,
                       reinterpret_cast<uint64_t*>(shared + kHeaderBytes), call.wanted, false);
    status = refined.status;
    work = refined.work;
  }
  Finish(block, argument, answer, call.index, status == RowStatus::kOk ? call.wanted : 0, status,
         work, NAN);
}

// kThreads: the most of a block; with half of them a warp has the registers to load ahead.
// kIsAlone: no clusters.
template <DType kDType, int kThreads, bool kIsAlone>
__global__ void __launch_bounds__(kThreads)
    TopkKernel(const __grid_constant__ TopkArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  TopkShared& memory = *reinterpret_cast<TopkShared*>(shared);
  uint32_t* const planes = reinterpret_cast<uint32_t*>(shared + kHeaderBytes);
  const Team all(memory.team);
  const Team block = all.Block();
  const Team team = kIsAlone ? block : all;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.thread() == 0 && team.blocks() > 1) StartBarrier(&memory.listed);
#endif
  BeginVerify(team, memory.verify);
  BeginKeep(team, memory.keep);
  ZeroBins(block, memory.bins);
  if (block.thread() == 0) memory.refine.Clear();
  AwaitKernelBefore();
  if (argument.lets_next_start) LetNextKernelStart();

  const int index = static_cast<int>(blockIdx.x) >> ShiftOf(team.blocks());
  const int request = argument.next_n == 1 ? index : index / argument.next_n;
  const auto* scores = reinterpret_cast<const typename RowAnswer<kDType>::Element*>(
      static_cast<const char*>(argument.scores) + index * argument.stride_bytes);
  const RowAnswer<kDType> answer(argument, scores, index);
  int visible = argument.columns;
  bool is_valid = true;
  if (argument.lengths != nullptr) {
    const int length = argument.lengths[request];
    is_valid = length >= 0 && length <= argument.columns;
    visible = static_cast<int>(
        semantics::VisibleLength(length, argument.next_n, index - request * argument.next_n));
  }
  TopkWork work{TopkWay::kCandidates, 0, 0, 0};
  float threshold = NAN;
  RowStatus status = is_valid ? RowStatus::kOk : RowStatus::kBadParam;
  const int wanted = is_valid ? min(argument.k, visible) : 0;

  const TiledRow<kDType> row(team, scores, visible);
  uint64_t* const list = reinterpret_cast<uint64_t*>(planes + 2 * argument.words);
  if (wanted == 0) {
    if (team.rank() != 0) return;
  } else if (visible <= argument.capacity) {
    if (team.rank() != 0) return;
    const Refined refined = RefineAll(block, memory, row, answer, list, wanted, argument.sorted);
    status = refined.status;
    work = refined.work;
  } else {
    RowHint hint = argument.hint;
    if (hint.indices != nullptr) hint.indices += static_cast<int64_t>(request) * hint.count;
    if (argument.has_thresholds) hint.threshold = argument.thresholds[index];
    const TopkTarget target{wanted, row.MostWords(team) <= argument.words ? argument.capacity : 0};
    constexpr bool kHasRegisters = 2 * kThreads == kMostThreads;
    const Verified verified = Verify<kHasRegisters>(
        team, memory.scan, memory.verify, memory.bins, row, target, hint, planes, argument.words,
        [&](const KeyRange& range) {
          return !argument.sorted &&
                 KeepOwn<kHasRegisters>(team, memory.scan, memory.keep, row, planes, range, target,
                                        reinterpret_cast<int32_t*>(list),
                                        [&](int place, int id) { answer.PutIndex(place, id); });
        });
    LetNextKernelStart();
    work.reads = static_cast<uint8_t>(verified.reads);
    if (verified.has_nan) {
      if (team.rank() != 0) return;
      status = RowStatus::kNanInput;
    } else if (verified.is_kept) {
      if (team.rank() != 0) return;
      work.rounds = 1;
      work.candidates = memory.keep.total;
      threshold = ThresholdForNext(verified, work.candidates, target);
    } else if (verified.is_done) {
      work.way = verified.way;
      threshold = ThresholdForNext(verified, verified.count.total, target);
      if (work.way == TopkWay::kPlateau && !argument.sorted) {
        PutMarked(team, row, verified.count, planes,
                  [&](int place, int id) { answer.PutIndex(place, id); });
        if (team.rank() != 0) return;
        work.candidates = wanted;
      } else {
        if (team.rank() == 0) ZeroBins(block, memory.bins);
        SendMarked(team, row, verified.count, planes, list, &memory.listed);
        if (team.rank() != 0) return;
        const Refined refined = RefineHeld(block, memory, answer, list, verified.count.total,
                                           verified.range, wanted, argument.sorted);
        status = refined.status;
        work.rounds = refined.work.rounds;
        work.candidates = refined.work.candidates;
      }
    } else {
      work.way = TopkWay::kDefinition;
      team.Sync();  // of the memory that changes hands
      status = TopkByDefinition<kDType>(
          team, *reinterpret_cast<DefinitionMemory*>(planes), scores, visible, wanted,
          argument.sorted, [answer](int place, int id, float x) { answer.Put(place, id, x); });
      if (team.rank() != 0) return;
    }
  }
  Finish(block, argument, answer, index, status == RowStatus::kOk ? wanted : 0, status, work,
         status == RowStatus::kOk ? threshold : NAN);
}

// Whether ShortTopkKernel takes all rows, but for places before the first vector of a row.
bool AreShort(const TopkInput& input, const TopkPlan& plan) {
  constexpr int64_t kMost = int64_t{8} * kMostThreads;
  return !input.sorted && plan.blocks == 1 && plan.threads == kMostThreads &&
         input.scores.vocab <= std::min<int64_t>(kMost, plan.capacity);
}

template <int kThreads, bool kIsAlone>
const void* KernelOf(DType dtype) {
  return ForDType(dtype, TopkKernel<DType::kF32, kThreads, kIsAlone>,
                  TopkKernel<DType::kBf16, kThreads, kIsAlone>,
                  TopkKernel<DType::kF16, kThreads, kIsAlone>);
}

// Blocks with a processor each have twice the registers.
const void* KernelFor(DType dtype, int64_t rows, const TopkPlan& plan, bool are_short) {
  if (are_short) {
    return ForDType(dtype, ShortTopkKernel<DType::kF32>, ShortTopkKernel<DType::kBf16>,
                    ShortTopkKernel<DType::kF16>);
  }
  const bool are_few = rows * plan.blocks <= CurrentDeviceShape().processors;
  if (are_few && plan.threads == kMostThreads / 2) return KernelOf<kMostThreads / 2, false>(dtype);
  return plan.blocks == 1 ? KernelOf<kMostThreads, true>(dtype)
                          : KernelOf<kMostThreads, false>(dtype);
}

// Where a kernel that starts early gains more than it takes from the one before it. The second call
// in a row takes 0.5 us less of 5.7 with short rows, 0.7 of 9.2 with one long row, 0.3 with 16,
// which let its blocks in when a row has been read: before, they took 2 us more.
constexpr int64_t kFewRows = 8;
constexpr int64_t kMostRowsToOverlap = 30;

template <typename T>
T* DataOrNull(const DeviceArray<T>& array) {
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
  CheckOneARow("thresholds", input.thresholds, rows, true);
}

// A hint that is written while it is read would give the blocks of a row different thresholds.
template <typename T>
void CheckApart(const DeviceArray<const int32_t>& hint, std::string_view name,
                const DeviceArray<T>& written) {
  if (hint.size == 0 || written.size == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(hint.data);
  const auto written_begin = reinterpret_cast<uintptr_t>(written.data);
  const auto bytes = [](int64_t size, size_t of_one) { return static_cast<size_t>(size) * of_one; };
  if (begin < written_begin + bytes(written.size, sizeof(T)) &&
      written_begin < begin + bytes(hint.size, sizeof(int32_t))) {
    ThrowInvalid("hint.data", "memory of " + std::string(name),
                 "memory that the call does not write");
  }
}

}  // namespace

void Topk(const TopkInput& input, const TopkOutput& output, void* stream, const TopkPlan* plan) {
  CheckInput(input);
  const int64_t rows = input.scores.rows;
  CheckOneARow("indices", output.indices, rows * input.k);
  CheckOneARow("values", output.values, rows * input.k, true);
  CheckOneARow("statuses", output.statuses, rows, true);
  CheckOneARow("work", output.work, rows, true);
  CheckApart(input.hint, "indices", output.indices);
  CheckApart(input.hint, "values", output.values);
  CheckApart(input.hint, "statuses", output.statuses);
  CheckApart(input.hint, "work", output.work);
  CheckApart(input.hint, "thresholds", input.thresholds);
  if (plan != nullptr) CheckPlan(*plan, input, SharedBytes);
  if (rows == 0) return;
  const TopkPlan chosen = plan != nullptr ? *plan : PlanTopk(input);
  const int64_t words = chosen.capacity == 0 ? 0 : WordsOfBlock(input.scores.vocab, chosen.blocks);
  const bool takes_hint = chosen.guess == TopkGuess::kHint || chosen.guess == TopkGuess::kSecant;
  TopkArgument argument{
      .scores = input.scores.data,
      .stride_bytes = input.scores.stride * static_cast<int64_t>(SizeOf(input.scores.dtype)),
      .columns = static_cast<int32_t>(input.scores.vocab),
      .k = input.k,
      .lengths = DataOrNull(input.lengths),
      .next_n = input.next_n,
      .hint = {takes_hint ? DataOrNull(input.hint) : nullptr, input.hint_columns, input.hint_shift,
               chosen.guess == TopkGuess::kSecant, NAN},
      .has_thresholds =
          chosen.guess == TopkGuess::kThreshold && DataOrNull(input.thresholds) != nullptr,
      .sorted = input.sorted,
      .capacity = chosen.capacity,
      .words = static_cast<int32_t>(words),
      .lets_next_start = rows <= kFewRows,
      .indices = output.indices.data,
      .values = DataOrNull(output.values),
      .statuses = DataOrNull(output.statuses),
      .work = DataOrNull(output.work),
      .thresholds = DataOrNull(input.thresholds)};
  const bool are_short = AreShort(input, chosen);
  LaunchOverRows({KernelFor(input.scores.dtype, rows, chosen, are_short),
                  {chosen.blocks, chosen.threads},
                  SharedBytes(words, chosen.capacity),
                  are_short || rows <= kMostRowsToOverlap},
                 rows, &argument, stream);
}

TopkPlan PlanTopk(const TopkInput& input) {
  CheckInput(input);
  return PlanFor(input, SharedBytes);
}

}  // namespace sluice::cuda
