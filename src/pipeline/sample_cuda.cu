// Select and Draw in one. A kernel decides what the top of a row, or the noise over all of it,
// certifies in one read or two; where its teams are small, another launch of it has larger ones for
// large k. Another kernel does the rest by the definition: code is cold when a kernel starts, so
// the way out, which is long, is not in the way of the others.
#include "backend/rows.cuh"
#include "draw/contenders.cuh"
#include "draw/draw_kept.cuh"
#include "select/nucleus.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -2;  // the id of a row that a kernel leaves to the next

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;  // null: ids and statuses are wanted alone
  int32_t* ids;
  RowStatus* statuses;  // null: not wanted
  bool is_first;        // launch of the kernel: no row is decided

  __device__ bool WantsCuts() const { return results != nullptr; }
  __device__ bool IsDecided(int row) const {
    return (WantsCuts() ? results[row].id : ids[row]) != kUndecided;
  }
  __device__ void Set(int row, const TokenResult& result) const {
    if (WantsCuts()) {
      results[row] = result;
      return;
    }
    ids[row] = result.id;
    if (statuses != nullptr) statuses[row] = result.status;
  }
};

// In dynamic shared memory.
struct SampleMemory {
  TeamMemory team;
  RowStart start;
  ScoreMemory scores;
  FirstReadMemory first;
  Boundary boundary;
  Nucleus nucleus;
  Band band;  // of the first block, for the others
  int32_t drawn;
};
static_assert(sizeof(SampleMemory) <= kMostSharedBytes);

__device__ bool HasNoFilter(const SelectParams& params, int vocab) {
  return !semantics::IsGreedy(params) && (params.top_k <= 0 || params.top_k >= vocab) &&
         params.top_p == 1 && params.min_p == 0 && params.top_n_sigma == 0 &&
         params.typical_p == 1 && params.xtc_probability == 0;
}

// By the first block alone; its first thread has the result.
__device__ TokenResult SampleFromTop(const Team& block, SampleMemory& memory, int listed,
                                     int needed, const SampleArgument& argument) {
  const SelectParams& params = memory.start.params;
  const NoiseKey& key = memory.start.key;
  TokenResult result;
  result.id = kUndecided;
  TokenList& list = memory.first.list;
  const ListedTokens pruned = PruneTop(block, list, {list.sorted, list.key, listed}, needed);
  const int size = pruned.size;
  if (size > block.threads()) return result;
  const float scale = semantics::ScalesOf(params).draw;
  const bool is_gumbel = argument.method == DrawMethod::kGumbel;
  auto score = [&](uint64_t token, float max) {
    return ScoreKey(ValueOf(token), IdOf(token), max, scale, key);
  };
  const ScoredTop scored = SortAndScore(block, pruned, memory.scores, is_gumbel, score);
  const FirstThreads first = block.FirstThreads(ThreadsToSort(size));
  if (first.thread() >= first.threads()) return result;
  const ListedTokens& sorted = scored.sorted;
  const KeptTop kept = SelectFromTop(first, sorted, params, key);
  const KeptToken mine{kept.IsMine(), kept.x, kept.id};
  int winner;
  if (is_gumbel) {
    uint32_t of_mine = 0;
    if (mine.is_kept) {
      of_mine = scored.has_scores ? memory.scores.of_listed[memory.scores.listed[first.thread()]]
                                  : score(sorted.tokens[first.thread()], kept.max);
    }
    winner = WinnerByScore(first, mine, of_mine);
  } else {
    uint64_t* weights = sorted.room;  // what was there is sorted
    int32_t* ids = reinterpret_cast<int32_t*>(weights + first.threads());
    winner = WinnerByCdf(first, mine, kept.max, scale, key, weights, ids);
  }
  if (argument.WantsCuts()) result.cut = CutOfTop(first, sorted, kept);
  result.id = IdOf(sorted.tokens[winner]);
  return result;
}

// The Cut that keeps everything.
template <DType kDType>
__device__ Cut CutOfAll(const Team& team, const TeamRow<kDType>& row) {
  uint32_t least = 0;  // inverted order key
  uint32_t count = 0;
  row.slice.ForEach([&](float x, int) {
    if (x == -INFINITY) return;
    ++count;
    least = max(least, ~semantics::OrderKey(x));
  });
  Cut cut;
  cut.lower = semantics::ValueOfKey(~static_cast<uint32_t>(team.Max(least)));
  cut.count = static_cast<int32_t>(team.Sum(count));
  uint32_t ties = 0;
  row.slice.ForEach([&](float x, int) { ties += x == cut.lower ? 1 : 0; });
  cut.ties_kept = static_cast<int32_t>(team.Sum(ties));
  return cut;
}

// From everything, or from the nucleus. The first thread has the result.
template <DType kDType>
__device__ TokenResult SampleByNoise(const Team& team, SampleMemory& memory,
                                     const VectorSlice<kDType>& slice, FirstVectors& loaded,
                                     const SampleArgument& argument, int row, bool has_top_p) {
  const SelectParams& params = memory.start.params;
  const NoiseKey& key = memory.start.key;
  const int vocab = argument.rows.vocab;
  TokenResult result;
  result.id = kUndecided;
  Clear(team, memory.first);
  Clear(team, memory.boundary);
  WeightUnit unit;
  if (!GuessUnit<kDType>(team, loaded, memory.start, semantics::ScalesOf(params).draw, params.top_p,
                         unit)) {
    return result;
  }
  if (has_top_p) {
    FirstRead<true, true>(team, slice, loaded, unit, key, memory.first);
  } else {
    FirstRead<false, true>(team, slice, loaded, unit, key, memory.first);
  }
  team.Sync();
  const RowTotals totals = TotalsOf(team, memory.first);
  if (has_top_p) SumBins(team, memory.first);
  if (!has_top_p && argument.WantsCuts()) {
    result.cut = CutOfAll(team, TeamRow<kDType>(team, argument.rows, row));
  }
  const int contenders = PullLists(team, memory.first.contenders).size;
  const WeightBins bins(unit);
  auto draw = [&](auto keeping_of) {
    if (team.thread() >= kDrawingThreads || contenders < 0) return -1;
    return DrawContender(team.FirstThreads(kDrawingThreads), memory.first, contenders, unit,
                         totals.max, key, keeping_of);
  };
  if (!has_top_p) {
    if (team.rank() != 0) return result;
    const int32_t id = draw([](uint64_t) { return Keeping::kKept; });
    if (id >= 0) result.id = id;
    return result;
  }

  if (team.rank() == 0) {
    const Team block = team.Block();
    ListAboveBins(block, memory.first, contenders, bins, memory.boundary);
    const bool is_known =
        contenders > 0 && memory.boundary.top_count <= kMostAboveBins && totals.mass < INFINITY;
    const KnownMasses masses =
        MassesOf(team, memory.boundary, unit, totals.mass, params.top_p, vocab);
    FindBoundary(block, memory.first, bins, masses, vocab, memory.boundary);
    const int32_t id = !is_known ? -1 : draw([&](uint64_t token) {
      return KeepingOf(token, unit, bins, masses, memory.boundary, params.profile.ties);
    });
    if (id >= 0) result.id = id;
    if (team.thread() == 0) memory.drawn = id;
    if (argument.WantsCuts()) {
      const Band band = FindBand(block, memory.first, bins, memory.boundary);
      if (team.thread() == 0) memory.band = band;
    }
  }
  if (!argument.WantsCuts()) {
    team.Sync();
    const bool is_drawn = *team.Of(0, &memory.drawn) >= 0;
    if (!is_drawn && team.rank() == 0) {
      const Band band = FindBand(team.Block(), memory.first, bins, memory.boundary);
      if (team.thread() == 0) memory.band = band;
    }
    if (is_drawn) {
      team.Sync();  // the first block leaves when all have read it
      return result;
    }
  }
  team.Sync();
  const Band band = *team.Of(0, &memory.band);
  result.id = kUndecided;
  const Nucleus nucleus =
      SelectInBand(team, slice, band, totals.max, params, memory.first.list, memory.nucleus);
  if (nucleus.last_at_lower < 0 || team.rank() != 0) return result;
  const CutIds ids{INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower};
  const int32_t id = draw([&](uint64_t token) {
    return ids.Keeps(ValueOf(token), IdOf(token)) ? Keeping::kKept : Keeping::kDropped;
  });
  if (id >= 0) result.id = id;
  result.cut = nucleus.cut;
  return result;
}

template <DType kDType>
__device__ void SampleRow(const Team& team, SampleMemory& memory, const SampleArgument& argument,
                          int row) {
  team.ArriveAtBlocks();
  const VectorSlice<kDType> slice(team, argument.rows, row);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  StartRow<kDType>(team, argument.rows, row, loaded, memory.start);
  const SelectParams& params = memory.start.params;
  TokenResult result;
  result.id = kUndecided;
  if (semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(memory.start.key)) {
    if (const int needed = TokensNeeded(team, params); needed > 0) {
      const int listed = ListTop(team, slice, loaded, memory.start, memory.first.list, needed);
      if (team.rank() != 0) return;
      if (listed > 0) result = SampleFromTop(team.Block(), memory, listed, needed, argument);
    } else if (argument.method == DrawMethod::kGumbel && argument.is_first) {
      if (const bool has_top_p = IsNucleusAlone(team, params, argument.rows.vocab);
          has_top_p || HasNoFilter(params, argument.rows.vocab)) {
        result = SampleByNoise(team, memory, slice, loaded, argument, row, has_top_p);
      }
    }
  }
  if (team.IsFirstThread()) argument.Set(row, result);
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SampleKernel(const __grid_constant__ SampleArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SampleMemory& memory = *reinterpret_cast<SampleMemory*>(shared);
  const Team team(memory.team);
  StartNextKernel();
  AwaitKernelBefore();
  ForEachRow(
      team, argument.rows, [&](int row) { return argument.is_first || !argument.IsDecided(row); },
      [&](int row) { SampleRow<kDType>(team, memory, argument, row); });
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
  AwaitKernelBefore();
  auto sample = [&](int index) {
    const TeamRow<kDType> row(team, argument.rows, index);
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
    if (team.IsFirstThread()) argument.Set(row.index, result);
  };
  ForEachRow(team, argument.rows, [&](int row) { return !argument.IsDecided(row); }, sample);
}

void Launch(const LogitsView& logits, SampleArgument argument, void* stream) {
  RowKernel kernel{ForDType(logits.dtype, SampleKernel<DType::kF32>, SampleKernel<DType::kBf16>,
                            SampleKernel<DType::kF16>),
                   ShapeForRows(logits.rows), sizeof(SampleMemory)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
  if (kernel.shape.threads < kMostThreads) {  // k may be too large for so few
    argument.is_first = false;
    kernel.shape = LargeShapeForRows(logits.rows);
    LaunchOverRowsLeft(kernel, logits.rows, &argument, stream);
  }
  LaunchOverRowsLeft(
      {ForDType(logits.dtype, SampleByDefinitionKernel<DType::kF32>,
                SampleByDefinitionKernel<DType::kBf16>, SampleByDefinitionKernel<DType::kF16>),
       WideShapeForRows(logits.rows), 0},
      logits.rows, &argument, stream);
}

}  // namespace

void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("results", results, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = results.data,
          .ids = nullptr,
          .statuses = nullptr,
          .is_first = true},
         stream);
}

void SampleIds(const LogitsView& logits, const RowParams& params, DrawMethod method,
               DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("ids", ids, logits.rows);
  CheckOneARow("statuses", statuses, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = nullptr,
          .ids = ids.data,
          .statuses = statuses.size == 0 ? nullptr : statuses.data,
          .is_first = true},
         stream);
}

}  // namespace sluice::cuda
