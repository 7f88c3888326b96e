// Select and Draw in one kernel: by the top of the row where that is certain, else by the
// definition.
#include "backend/rows.cuh"
#include "draw/draw_kept.cuh"
#include "draw/score_kept.cuh"
#include "select/nucleus.cuh"

namespace sluice::cuda {
namespace {

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;
};

// By the first block alone; its first thread has the result.
__device__ TokenResult SampleFromTop(const Team& block, SelectMemory& memory, int size, int needed,
                                     DrawMethod method, const SelectParams& params,
                                     const NoiseKey& key) {
  const float scale = semantics::ScalesOf(params).draw;
  TokenResult result;
  if (size > block.threads()) {
    result.cut = SelectListed(block, memory, size, params, key).cut;
    const ListSlice slice(memory.top, size);
    const float max = MaxOfRow(block, slice);
    result.id = DrawToken(block, memory.find, slice, result.cut, {max, scale, method, key});
    return result;
  }
  size = PruneTop(block, memory.top, size, needed);
  const Team first = block.FirstThreads(ThreadsToSort(size));
  if (first.thread() >= first.threads()) return result;
  const TopSelection top = SelectSorted(first, memory.top, size, params, key);
  auto* weights = memory.top.key;  // what was there is sorted
  auto* ids = reinterpret_cast<int32_t*>(memory.find.count);
  const int winner = WinnerOfKept(first, {top.kept.IsMine(), top.kept.x, top.kept.id}, top.max,
                                  scale, method, key, weights, ids);
  result.cut = top.cut;
  result.id = IdOf(memory.top.sorted[winner]);
  return result;
}

// In dynamic shared memory.
struct SampleMemory {
  SelectMemory select;
  ScoreQueue queues[kMostWarps];
};

// Whether top-p alone decided the row; then the first thread has the token.
template <DType kDType>
__device__ bool SampleNucleus(const Team& team, SampleMemory& memory, const TeamRow<kDType>& row,
                              const VectorSlice<kDType>& slice, FirstVectors<kDType>& loaded,
                              TokenResult& result) {
  const float scale = semantics::ScalesOf(row.params).draw;
  KeptScorer scorer(memory.queues, scale, row.key);
  Nucleus nucleus;
  if (!SelectNucleus(team, slice, loaded, memory.select, row.params, scorer, nucleus)) return false;
  BestToken best = scorer.Finish();
  if (team.rank() == 0) {
    const CutIds ids{INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower};
    ListSlice(memory.select.top, nucleus.band).ForEach([&](float x, int id) {
      if (ids.Keeps(x, id)) scorer.SeeAlone(x, id);
    });
    best = scorer.Finish();
  }
  result.cut = nucleus.cut;
  result.id = IdOfBest(team, best);
  return true;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads) SampleKernel(SampleArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SampleMemory& all_memory = *reinterpret_cast<SampleMemory*>(shared);
  SelectMemory& memory = all_memory.select;
  const Team team(memory.team);
  const VectorSlice<kDType> slice(team, argument.rows);
  FirstVectors<kDType> loaded;
  slice.LoadFirst(loaded);  // on the way while the parameters come
  const TeamRow<kDType> row(team, argument.rows);
  const bool is_valid = row.HasValidParams(argument.rows.limits);
  if (const int needed = is_valid ? TokensNeeded(row.params) : 0; needed > 0) {
    const int size = ListTop(team, slice, loaded, memory.top, needed);
    if (size > 0) {
      if (team.rank() != 0) return;
      const TokenResult result =
          SampleFromTop(team.Block(), memory, size, needed, argument.method, row.params, row.key);
      if (team.thread() == 0) argument.results[row.index] = result;
      return;
    }
  }
  TokenResult result;
  if (is_valid && argument.method == DrawMethod::kGumbel &&
      IsNucleusAlone(team, row.params, argument.rows.vocab) &&
      SampleNucleus(team, all_memory, row, slice, loaded, result)) {
    if (team.IsFirstThread()) argument.results[row.index] = result;
    return;
  }
  result = {};
  const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
  result.cut = semantics::CutOfStatus(scan.status);
  result.status = scan.status;
  if (scan.status == RowStatus::kOk) {
    RowRules rules(team, memory.find, row.slice, scan, row.params, row.key);
    result.cut = rules.Select(nullptr);
    const float scale = semantics::ScalesOf(row.params).draw;
    result.id = DrawToken(team, memory.find, row.slice, result.cut,
                          {scan.max, scale, argument.method, row.key});
  }
  if (team.IsFirstThread()) argument.results[row.index] = result;
}

}  // namespace

void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("results", results, logits.rows);
  SampleArgument argument{ArgumentOf(logits, params), method, results.data};
  const RowKernel kernel{ForDType(logits.dtype, SampleKernel<DType::kF32>,
                                  SampleKernel<DType::kBf16>, SampleKernel<DType::kF16>),
                         ShapeForRows(logits.rows), sizeof(SampleMemory)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
}

}  // namespace sluice::cuda
