// Select and Draw in one kernel: what the top of a row certifies, in one read, or else the noise
// over all of it, in one or two, and for every other row the definition.
#include "backend/rows.cuh"
#include "backend/verdict.cuh"
#include "draw/contenders.cuh"
#include "draw/draw_kept.cuh"
#include "head/device_course.cuh"
#include "pipeline/sample_survivors.h"
#include "select/nucleus.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -2;  // the id of a row that is left to the definition

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;  // null: ids and statuses are wanted alone
  int32_t* ids;
  RowStatus* statuses;  // null: not wanted
  Way* ways;            // the same

  __device__ bool WantsCuts() const { return results != nullptr; }
  __device__ void Set(int row, const TokenResult& result, Way way) const {
    if (ways != nullptr) ways[row] = way;
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
  TopPlan plan;
  bool are_valid;
  ScoreMemory scores;
  FirstReadMemory first;
  Boundary boundary;
  Nucleus nucleus;
  Band band;  // of the first block, for the others
  int32_t drawn;
  VerdictMemory verdict;
};
static_assert(sizeof(SampleMemory) <= kMostSharedBytes);

__device__ bool HasNoFilter(const SelectParams& params, int vocab) {
  return !semantics::IsGreedy(params) && (params.top_k <= 0 || params.top_k >= vocab) &&
         params.top_p == 1 && params.min_p == 0 && params.top_n_sigma == 0 &&
         params.typical_p == 1 && params.xtc_probability == 0;
}

// Stages 10 to 15 and the draw on a row, or on a list of what they can keep of it.
template <typename Slice>
__device__ TokenResult SampleSlice(const Team& team, FindMemory& memory, const Slice& slice,
                                   const semantics::RowScan& scan, const SelectParams& params,
                                   const NoiseKey& key, DrawMethod method) {
  TokenResult result;
  result.cut = semantics::CutOfStatus(scan.status);
  result.status = scan.status;
  if (scan.status == RowStatus::kOk) {
    RowRules rules(team, memory, slice, scan, params, key);
    result.cut = rules.Select(nullptr);
    const float scale = semantics::ScalesOf(params).draw;
    result.id = DrawToken(team, memory, slice, result.cut, {scan.max, scale, method, key});
  }
  return result;
}

__device__ inline SampleMemory& MemoryOfBlock() {
  extern __shared__ __align__(16) unsigned char shared[];
  return *reinterpret_cast<SampleMemory*>(shared);
}

// From the listed top, which is too long for a token a thread. By the first block; not inline: what
// it needs is not in the way of shorter lists.
__device__ __noinline__ TokenResult SampleFromList(const uint64_t* tokens, int size,
                                                   DrawMethod method) {
  SampleMemory& memory = MemoryOfBlock();
  const Team block = Team(memory.team).Block();
  const TokenSlice slice(block, tokens, size);
  return SampleSlice(block, memory.first.find, slice, ScanRow(block, slice), memory.start.params,
                     memory.start.key, method);
}

// By the first block alone; its first thread has the result.
__device__ TokenResult SampleFromTop(const Team& team, SampleMemory& memory, const ListedTop& top,
                                     const TopPlan& plan, const SampleArgument& argument) {
  const Team block = team.Block();
  const NoiseKey& key = memory.start.key;
  TokenResult result;
  result.id = kUndecided;
  const ListedTokens pruned =
      PruneTop(team, memory.first.list, top, plan, memory.start, argument.rows.vocab);
  const int size = pruned.size;
  if (size > block.threads()) {
    return plan.is_whole ? result : SampleFromList(pruned.tokens, size, argument.method);
  }
  const float scale = memory.start.scales.draw;
  const bool is_gumbel = argument.method == DrawMethod::kGumbel;
  auto score = [&](uint64_t token, float max) {
    return ScoreKey(ValueOf(token), IdOf(token), max, scale, key);
  };
  const ScoredTop scored = SortAndScore(block, pruned, memory.scores, is_gumbel, score);
  const FirstThreads first = block.FirstThreads(ThreadsToSort(size));
  if (first.thread() >= first.threads()) return result;
  const ListedTokens& sorted = scored.sorted;
  WholeMass whole;
  if (plan.is_whole) {
    whole = WholeMassOf(team, top, ValueOf(sorted.tokens[0]), argument.rows.vocab);
  }
  const KeptTop kept = SelectFromTop(first, sorted, memory.start, plan.is_whole ? &whole : nullptr);
  // Where a token may or may not be kept, one that is may have won.
  if (!kept.is_known) return result;
  if (!kept.IsCertain() && (argument.WantsCuts() || !is_gumbel)) return result;
  const KeptToken mine{kept.MayBeMine(), kept.x, kept.id};
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
  if (winner >= kept.end) return result;
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
  const float octaves =
      has_top_p ? OctavesToFloor(params.top_p, slice.SampledShare()) : kOctavesToFloor;
  if (!GuessUnit<kDType>(team, loaded, memory.start, memory.start.scales.draw, params.top_p,
                         octaves, unit)) {
    return result;
  }
  if (has_top_p) {
    FirstRead<true, true>(team, slice, loaded, unit, key, memory.first);
  } else {
    FirstRead<false, true>(team, slice, loaded, unit, key, memory.first);
  }
  team.Sync();
  // The first block leaves alone: from here on nobody reads its memory.
  if (!has_top_p && !argument.WantsCuts() && team.rank() != 0) return result;
  const RowTotals totals = TotalsOf(team, memory.first);
  if (has_top_p) {
    SumBins(team, memory.first);
    team.Sync();
  }
  if (!has_top_p && argument.WantsCuts()) {
    result.cut = CutOfAll(team, TeamRow<kDType>(team, argument.rows, row));
  }
  const int contenders = ContendersOf(memory.first);
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
    const int32_t id = !is_known || argument.WantsCuts() ? -1 : draw([&](uint64_t token) {
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

// Whether a guess decides the row.
template <DType kDType>
__device__ bool SampleByGuess(const Team& team, SampleMemory& memory,
                              const SampleArgument& argument, int row) {
  const VectorSlice<kDType> slice(team, argument.rows, row);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  Verdict verdict(team, memory.verdict);
  Clear(team, memory.first.list);  // before another block knows of this one
  BeginRow(team, memory.start);
  const SelectParams& params = memory.start.params;
  StartRow<kDType>(team, argument.rows, row, loaded, memory.start,
                   [&] { memory.plan = PlanOfTop(params); });
  if (team.thread() / kWarpSize == 1) {  // while the first one guesses a threshold
    memory.are_valid =
        semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(memory.start.key);
  }
  // The first thread has the result.
  auto is_decided = [&](const TokenResult& result) {
    const bool is_certain = result.id != kUndecided;
    if (team.IsFirstThread() && is_certain) argument.Set(row, result, Way::kCertified);
    return verdict.Tell(is_certain ? 1 : 0) != 0;
  };
  const TopPlan plan = memory.plan;
  ListedTop top;
  if (plan.needed > 0) {
    top = ListTop(team, slice, loaded, memory.start, memory.first, plan);
  } else {
    team.SyncBlock();
  }
  if (!memory.are_valid) return false;
  if (plan.needed > 0) {
    TokenResult result;
    result.id = kUndecided;
    if (team.rank() == 0 && top.size > 0) {
      result = SampleFromTop(team, memory, top, plan, argument);
    }
    if (is_decided(result)) return true;
    slice.LoadFirst(loaded);
  }
  if (argument.method != DrawMethod::kGumbel) return false;
  const bool has_top_p = IsNucleusAlone(team, params, argument.rows.vocab);
  if (!has_top_p && !HasNoFilter(params, argument.rows.vocab)) return false;
  return is_decided(SampleByNoise(team, memory, slice, loaded, argument, row, has_top_p));
}

// Not inline: what it needs is not in the way of the guesses, which are the rule.
template <DType kDType>
__device__ __noinline__ void SampleByDefinition(const SampleArgument& argument, int index) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const TeamRow<kDType> row(team, argument.rows, index);
  const TokenResult result =
      SampleSlice(team, memory.first.find, row.slice, row.Scan(team, argument.rows.limits),
                  row.params, row.key, argument.method);
  if (team.IsFirstThread()) argument.Set(index, result, Way::kDefinition);
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SampleKernel(const __grid_constant__ SampleArgument argument) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const int row = TeamIndex(team);
  if (!SampleByGuess<kDType>(team, memory, argument, row)) {
    SampleByDefinition<kDType>(argument, row);
  }
}

struct SurvivorsArgument {
  SampleArgument sample;
  CallArgument call;
};

// The Gumbel draw from everything, of which the list holds all that may win and the maximum.
__device__ int32_t DrawFromSurvivors(const Team& block, const TokenSlice& slice,
                                     const RowCourse& course) {
  const float max = ScanRow(block, slice).max;
  BestToken best;
  slice.ForEach([&](float x, int id) {
    const uint64_t bits = semantics::NoiseBits(course.key, semantics::GumbelStream(course.key), id);
    best.See(semantics::LogWeight(x, max, course.draw_scale) + semantics::Gumbel(bits), x, id);
  });
  return IdOfBest(block, best);
}

// Whether the list of a row's survivors answers it. The first thread has the result.
__device__ bool SampleListed(const Team& block, SampleMemory& memory,
                             const SurvivorsArgument& argument, int row, TokenResult& result) {
  const RowCourse& course = argument.call.memory.courses[row];
  const RowsArgument& rows = argument.sample.rows;
  Clear(block, memory.first.list);
  if (block.thread() == 0) {
    memory.start.params = rows.params[rows.has_params_per_row ? row : 0];
    memory.start.key = rows.keys[rows.has_keys_per_row ? row : 0];
    memory.start.scales = semantics::ScalesOf(memory.start.params);
  }
  block.SyncBlock();
  TokenList& list = memory.first.list;
  const Survivor* const survivors =
      argument.call.memory.survivors + int64_t{row} * argument.call.memory.budget;
  const float least = LeastOfFirstK(course);
  const bool is_draw = course.decides == Decides::kSoftmax && course.way == RowCourse::Way::kPlanes;
  for (int i = block.thread(); i < course.survivors; i += block.threads()) {
    if (!is_draw && survivors[i].x < least) continue;
    const uint32_t place = atomicAdd(&list.count, 1u);
    if (place < kListCapacity) list.tokens[place] = KeyOfToken(survivors[i].x, survivors[i].id);
  }
  block.SyncBlock();
  if (list.count > kListCapacity) return false;
  const int size = static_cast<int>(list.count);
  if (is_draw) {
    result.id = DrawFromSurvivors(block, TokenSlice(block, list.tokens, size), course);
  } else if (course.way == RowCourse::Way::kAllowed) {  // by any rules
    result = SampleFromList(list.tokens, size, argument.sample.method);
  } else {
    ListedTop top;
    top.size = size;
    const int needed = course.decides == Decides::kFirst ? course.k : size;
    result = SampleFromTop(block, memory, top, {needed, false}, argument.sample);
  }
  return true;
}

constexpr int kSurvivorThreads = 512;

__global__ void __launch_bounds__(kSurvivorThreads)
    SampleSurvivorsKernel(const __grid_constant__ SurvivorsArgument argument) {
  LetNextKernelStart();
  AwaitKernelBefore();
  SampleMemory& memory = MemoryOfBlock();
  const Team block(memory.team);
  const int row = static_cast<int>(blockIdx.x);
  RowCourse& course = argument.call.memory.courses[row];
  if (course.way != RowCourse::Way::kDense) {
    TokenResult result;
    result.id = -1;
    result.status = StatusOf(course);
    const bool is_answered =
        result.status != RowStatus::kOk || SampleListed(block, memory, argument, row, result);
    if (block.IsFirstThread()) {
      if (is_answered) {
        argument.sample.Set(row, result, Way::kCertified);
      } else {
        LeaveToDense(course, DenseReason::kSurvivors);
      }
    }
  }
  if (block.IsFirstThread()) Report(argument.call, row);
}

__global__ void __launch_bounds__(kMostThreads)
    SampleDenseKernel(const __grid_constant__ SurvivorsArgument argument) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  if (TeamIndex(team) >= argument.call.memory.counters->dense) return;
  const int row = argument.call.memory.dense_rows[TeamIndex(team)];
  if (!SampleByGuess<DType::kF32>(team, memory, argument.sample, row)) {
    SampleByDefinition<DType::kF32>(argument.sample, row);
  }
}

SurvivorsArgument ArgumentOf(const CallArgument& call, const RowParams& params, DrawMethod method,
                             const DrawnTokens& tokens) {
  const int64_t stride = int64_t{call.planes.tiles} * kTileRows;
  const LogitsView logits{
      call.memory.scores, call.memory.rows, call.planes.vocab, stride, DType::kF32, {}};
  return {{.rows = ArgumentOf(logits, params),
           .method = method,
           .results = nullptr,
           .ids = tokens.ids,
           .statuses = tokens.statuses,
           .ways = nullptr},
          call};
}

void Launch(const LogitsView& logits, SampleArgument argument, void* stream) {
  LaunchOverRows({ForDType(logits.dtype, SampleKernel<DType::kF32>, SampleKernel<DType::kBf16>,
                           SampleKernel<DType::kF16>),
                  ShapeForRows(logits.rows), sizeof(SampleMemory)},
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
          .ways = nullptr},
         stream);
}

void SampleIds(const LogitsView& logits, const RowParams& params, DrawMethod method,
               DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream,
               DeviceArray<Way> ways) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("ids", ids, logits.rows);
  CheckOneARow("statuses", statuses, logits.rows, true);
  CheckOneARow("ways", ways, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = nullptr,
          .ids = ids.data,
          .statuses = statuses.size == 0 ? nullptr : statuses.data,
          .ways = ways.size == 0 ? nullptr : ways.data},
         stream);
}

void SampleSurvivors(const CallArgument& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream) {
  SurvivorsArgument argument = ArgumentOf(call, params, method, tokens);
  LaunchBehind(reinterpret_cast<const void*>(SampleSurvivorsKernel),
               static_cast<unsigned>(call.memory.rows), 1, kSurvivorThreads, sizeof(SampleMemory),
               &argument, stream);
}

void SampleDenseRows(const CallArgument& call, const RowParams& params, DrawMethod method,
                     const DrawnTokens& tokens, void* stream) {
  SurvivorsArgument argument = ArgumentOf(call, params, method, tokens);
  LaunchOverRows({reinterpret_cast<const void*>(SampleDenseKernel), ShapeForRows(call.memory.rows),
                  sizeof(SampleMemory)},
                 call.memory.rows, &argument, stream);
}

}  // namespace sluice::cuda
