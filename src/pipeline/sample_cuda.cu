// Select and Draw: one kernel (two, where the first has few threads) decides what the top of a row,
// its nucleus or the whole of it certifies, in one read or two; another does what is left by the
// definition. A kernel is cold when it
// starts, so the way out, which is long, is not in the way of the others.
#include "backend/rows.cuh"
#include "draw/draw_all.cuh"
#include "draw/draw_kept.cuh"
#include "draw/score_kept.cuh"
#include "select/nucleus.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -2;  // the id of a row that the first kernel leaves to the second

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;
  bool is_second;  // of two kernels alike: the first has decided rows
};

// In dynamic shared memory.
struct SampleMemory {
  TeamMemory team;
  NucleusMemory nucleus;
  ScoreQueue queues[kMostWarps];
};

__device__ bool HasNoFilter(const SelectParams& params, int vocab) {
  return !semantics::IsGreedy(params) && (params.top_k <= 0 || params.top_k >= vocab) &&
         params.top_p == 1 && params.min_p == 0 && params.top_n_sigma == 0 &&
         params.typical_p == 1 && params.xtc_probability == 0;
}

// By the first block alone; its first thread has the result.
__device__ TokenResult SampleFromTop(const Team& block, TokenList& list, int listed, int needed,
                                     DrawMethod method, const SelectParams& params,
                                     const NoiseKey& key) {
  TokenResult result;
  result.id = kUndecided;
  const int size = PruneTop(block, list, listed, needed);
  if (size > block.threads()) return result;
  const FirstThreads first = block.FirstThreads(ThreadsToSort(size));
  if (first.thread() >= first.threads()) return result;
  const TopSelection top = SelectSorted(first, list, size, params, key);
  const float scale = semantics::ScalesOf(params).draw;
  uint64_t* weights = list.key;  // what was there is sorted
  int32_t* ids = reinterpret_cast<int32_t*>(list.key + first.threads());
  const int winner = WinnerOfKept(first, {top.kept.IsMine(), top.kept.x, top.kept.id}, top.kept.max,
                                  scale, method, key, weights, ids);
  result.cut = top.cut;
  result.id = IdOf(list.sorted[winner]);
  return result;
}

template <DType kDType>
__device__ TokenResult SampleFromNucleus(const Team& team, SampleMemory& memory,
                                         const TeamRow<kDType>& row,
                                         const VectorSlice<kDType>& slice,
                                         FirstVectors<kDType>& loaded) {
  TokenResult result;
  result.id = kUndecided;
  KeptScorer scorer(memory.queues, semantics::ScalesOf(row.params).draw, row.key);
  Nucleus nucleus;
  if (!SelectNucleus(team, slice, loaded, memory.nucleus, row.params, scorer, nucleus)) {
    return result;
  }
  if (team.rank() == 0) {  // of the band, what is kept
    const CutIds ids{INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower};
    if (team.thread() < nucleus.band) {
      const uint64_t key = memory.nucleus.list.sorted[team.thread()];
      if (ids.Keeps(ValueOf(key), IdOf(key))) scorer.SeeAlone(ValueOf(key), IdOf(key));
    }
  }
  result.cut = nucleus.cut;
  result.id = IdOfBest(team, scorer.Finish());
  return result;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SampleKernel(const __grid_constant__ SampleArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SampleMemory& memory = *reinterpret_cast<SampleMemory*>(shared);
  const Team team(memory.team);
  if (argument.is_second && argument.results[RowIndex(team)].id != kUndecided) return;
  const VectorSlice<kDType> slice(team, argument.rows);
  const TeamRow<kDType> row(team, argument.rows);
  FirstVectors<kDType> loaded;
  slice.LoadFirst(loaded);  // on the way while the parameters come
  TokenResult result;
  result.id = kUndecided;
  if (row.HasValidParams(argument.rows.limits)) {
    if (const int needed = TokensNeeded(team, row.params); needed > 0) {
      const int listed = ListTop(team, slice, loaded, memory.nucleus.list, needed);
      if (listed > 0) {
        if (team.rank() != 0) return;
        result = SampleFromTop(team.Block(), memory.nucleus.list, listed, needed, argument.method,
                               row.params, row.key);
      }
    } else if (argument.method == DrawMethod::kGumbel &&
               IsNucleusAlone(team, row.params, argument.rows.vocab)) {
      result = SampleFromNucleus(team, memory, row, slice, loaded);
    } else if (argument.method == DrawMethod::kGumbel &&
               HasNoFilter(row.params, argument.rows.vocab)) {
      const DrawnFromAll drawn = DrawFromAll(team, slice, loaded, memory.nucleus.list,
                                             semantics::ScalesOf(row.params).draw, row.key);
      if (drawn.id >= 0) {
        result.id = drawn.id;
        result.cut = drawn.cut;
      }
    }
  }
  if (team.IsFirstThread()) argument.results[row.index] = result;
}

// In shared memory.
struct DefinitionMemory {
  TeamMemory team;
  FindMemory find;
};

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SampleByDefinitionKernel(const __grid_constant__ SampleArgument argument) {
  __shared__ DefinitionMemory memory;
  const Team team(memory.team);
  if (argument.results[RowIndex(team)].id != kUndecided) return;
  const TeamRow<kDType> row(team, argument.rows);
  const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
  TokenResult result;
  result.cut = semantics::CutOfStatus(scan.status);
  result.status = scan.status;
  if (scan.status == RowStatus::kOk) {
    RowRules rules(team, memory.find, row.slice, scan, row.params, row.key);
    result.cut = rules.Select(nullptr);
    const float scale = semantics::ScalesOf(row.params).draw;
    result.id = DrawToken(team, memory.find, row.slice, result.cut,
                          {scan.max, scale, argument.method, row.key});
  }
  team.Sync();  // everybody has read whether it is decided
  if (team.IsFirstThread()) argument.results[row.index] = result;
}

}  // namespace

void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("results", results, logits.rows);
  SampleArgument argument{ArgumentOf(logits, params), method, results.data, false};
  RowKernel kernel{ForDType(logits.dtype, SampleKernel<DType::kF32>, SampleKernel<DType::kBf16>,
                            SampleKernel<DType::kF16>),
                   ShapeForRows(logits.rows), sizeof(SampleMemory)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
  if (kernel.shape.threads < kMostThreads) {  // k may be too large for so few
    argument.is_second = true;
    kernel.shape = LargeShapeForRows(logits.rows);
    LaunchOverRows(kernel, logits.rows, &argument, stream);
  }
  LaunchOverRows(
      {ForDType(logits.dtype, SampleByDefinitionKernel<DType::kF32>,
                SampleByDefinitionKernel<DType::kBf16>, SampleByDefinitionKernel<DType::kF16>),
       WideShapeForRows(logits.rows), 0},
      logits.rows, &argument, stream);
}

}  // namespace sluice::cuda
