// Select and Draw in one kernel: what the top of a row certifies, in one read, or else the noise
// over all of it, in one or two, and for every other row the definition.
#pragma once

#include "cuda/row_by_definition.cuh"
#include "cuda/team_broadcast.cuh"
#include "draw/cuda/contenders.cuh"
#include "draw/cuda/draw_kept.cuh"
#include "select/cuda/binned_top.cuh"
#include "select/cuda/nucleus.cuh"
#include "select/cuda/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -2;  // the id of a row that is left to the definition

struct SampleArgument {
  RowsArgument rows;
  DrawMethod method;
  TokenResult* results;  // null: write ids and statuses alone
  int32_t* ids;
  RowStatus* statuses;  // null: not reported
  RowPath* ways;        // null: not reported

  __device__ bool NeedsCuts() const { return results != nullptr; }
  __device__ void Set(int row, const TokenResult& result, RowPath way) const {
    if (ways != nullptr) ways[row] = way;
    if (NeedsCuts()) {
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
  RowPrologue start;
  TopPlan plan;
  bool are_valid;
  ScoreMemory scores;
  WeightHistogramMemory first;
  Boundary boundary;
  Nucleus nucleus;
  Band band;  // of the first block, for the others
  int32_t drawn;
  BroadcastMemory broadcast;
};
static_assert(sizeof(SampleMemory) <= kMostSharedBytes);

__device__ bool HasNoFilter(const SelectParams& params, int vocab) {
  return semantics::RulesOf(params, vocab) == semantics::RuleSet::kNone;
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

// From a list, by any rules. By the first block; not inline: what it needs is not in the way of
// what is the rule.
__device__ __noinline__ TokenResult SampleFromList(const uint64_t* tokens, int size,
                                                   DrawMethod method) {
  SampleMemory& memory = MemoryOfBlock();
  const Team block = Team(memory.team).Block();
  const TokenSlice slice(block, tokens, size);
  return SampleSlice(block, memory.first.find, slice, ScanRow(block, slice), memory.start.params,
                     memory.start.key, method);
}

// The Gumbel draw from a list that is certified by its count, where bins find what is kept of it.
// By the first block alone; its first thread has the result.
__device__ __noinline__ TokenResult SampleFromMany(int size, bool needs_cut) {
  SampleMemory& memory = MemoryOfBlock();
  const Team block = Team(memory.team).Block();
  TokenList& list = memory.first.list;
  const ListedTokens from{list.tokens, list.room, size};
  const BinnedTop kept = SelectByBins(block, from, memory.start);
  if (kept.last == 0) return SampleFromList(from.tokens, size, DrawMethod::kGumbel);
  TokenResult result;
  const semantics::Stream stream = semantics::GumbelStream(memory.start.key);
  BestToken best;
#pragma unroll 1
  for (int i = block.thread(); i < from.size; i += block.threads()) {
    if (from.tokens[i] < kept.last) continue;
    const float x = ValueOf(from.tokens[i]);
    const int32_t id = IdOf(from.tokens[i]);
    const float g = semantics::Gumbel(semantics::NoiseBits(memory.start.key, stream, id));
    best.See(semantics::LogWeight(x, kept.max, memory.start.scales.draw) + g, x, id);
  }
  result.id = IdOfBest(block, best);
  if (needs_cut) result.cut = CutOfBins(block, from, kept);
  return result;
}

// What a kernel adds to every draw; this one adds nothing, and so costs nothing.
struct DefaultExtension {
  static constexpr bool kHasOwnRows = false;  // rows with a top that it draws from by itself

  __device__ TopPlan PlanOf(const SelectParams& params, int vocab, int elements) const {
    return PlanOfTop(params, vocab, elements);
  }
  template <bool>
  __device__ NoMoments MomentsOf(const SelectParams&) const {
    return {};
  }
};

// Of the top of a row that a draw was certain of: the tokens, sorted, and the place of its own.
struct NoCallback {
  __device__ void operator()(const ListedTokens&, int) const {}
};

// By the first block alone; its first thread has the result.
template <class Typical = NoTypical, class Callback = NoCallback>
__device__ TokenResult SampleFromTop(const Team& team, SampleMemory& memory, const ListedTop& top,
                                     const TopPlan& plan, const SampleArgument& argument,
                                     Typical typical = {}, Callback callback = {}) {
  constexpr bool kIsTypical = !std::is_same_v<Typical, NoTypical>;
  constexpr bool kSorts = kIsTypical || !std::is_same_v<Callback, NoCallback>;
  const Team block = team.Block();
  const NoiseKey& key = memory.start.key;
  TokenResult result;
  result.id = kUndecided;
  const bool is_gumbel = argument.method == DrawMethod::kGumbel;
  if constexpr (!kSorts) {
    if (top.size > kMostRanked && !plan.is_whole && is_gumbel && BinsDecide(memory.start.params)) {
      return SampleFromMany(top.size, argument.NeedsCuts());
    }
  }
  const ListedTokens whole_list{memory.first.list.tokens, memory.first.list.room, top.size};
  const ListedTokens pruned = Typical::kSortsWhole ? whole_list
                                                   : PruneTop(team, memory.first.list, top, plan,
                                                              memory.start, argument.rows.vocab);
  const int size = pruned.size;
  const float scale = memory.start.scales.draw;
  if (size > block.threads()) {
    if (plan.is_whole || kSorts) return result;
    return SampleFromList(pruned.tokens, size, argument.method);
  }
  if constexpr (kIsTypical) typical.has_all = top.has_all && size == top.size;
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
  const KeptTop kept =
      SelectFromTop(first, sorted, memory.start, plan.is_whole ? &whole : nullptr, typical);
  // Where a token may or may not be kept, one that is may have won.
  if (!kept.is_known) return result;
  if (!kept.IsCertain() && (argument.NeedsCuts() || !is_gumbel)) return result;
  const KeptToken mine{kept.MayBeKept(first.thread()), kept.x, kept.id};
  const int winner = WinnerOfKept(
      first, mine, argument.method, kept.max, scale, key, sorted.room,
      [&] { return ScoreOfThread(scored, memory.scores, first.thread(), kept.max, score); });
  if (winner >= kept.end) return result;
  if (argument.NeedsCuts()) result.cut = CutOfTop(first, sorted, kept);
  result.id = IdOf(sorted.tokens[winner]);
  callback(sorted, winner);
  return result;
}

// The Cut that keeps everything.
template <typename Slice>
__device__ Cut CutOfAll(const Team& team, const Slice& slice) {
  uint32_t least = 0;  // inverted order key
  uint32_t count = 0;
  slice.ForEach([&](float x, int) {
    if (x == -INFINITY) return;
    ++count;
    least = max(least, ~semantics::OrderKey(x));
  });
  Cut cut;
  cut.lower = semantics::ValueOfKey(~static_cast<uint32_t>(team.Max(least)));
  cut.count = static_cast<int32_t>(team.Sum(count));
  uint32_t ties = 0;
  slice.ForEach([&](float x, int) { ties += x == cut.lower ? 1 : 0; });
  cut.ties_kept = static_cast<int32_t>(team.Sum(ties));
  return cut;
}

// From everything, or from the nucleus. The first thread has the result.
template <DType kDType, bool kPatched>
__device__ TokenResult SampleByNoise(const Team& team, SampleMemory& memory,
                                     VectorSlice<kDType, kPatched>& slice, FirstVectors& loaded,
                                     const SampleArgument& argument, int row, bool has_top_p) {
  const SelectParams& params = memory.start.params;
  const NoiseKey& key = memory.start.key;
  const int vocab = argument.rows.vocab;
  TokenResult result;
  result.id = kUndecided;
  const MarkRoom room = RoomBesideBins(memory.first);
  slice.MarkPatches(team, room.data, room.bytes);
  Clear(team, memory.first);
  Clear(team, memory.boundary);
  WeightUnit unit;
  const float octaves =
      has_top_p ? OctavesToFloor(params.top_p, slice.SampledShare()) : kOctavesToFloor;
  if (!GuessUnit<kDType>(team, loaded, memory.start, memory.start.scales.draw, params.top_p,
                         octaves, unit)) {
    return result;
  }
  const float sampled = LargestOfFirst(team, memory.start);
  if (has_top_p) {
    ReadWeightHistogram<true, true>(team, slice, loaded, unit, key, sampled, memory.first);
  } else {
    ReadWeightHistogram<false, true>(team, slice, loaded, unit, key, sampled, memory.first);
  }
  team.Sync();
  // The other blocks return here: from now on no block reads their memory.
  if (!has_top_p && !argument.NeedsCuts() && team.rank() != 0) return result;
  const RowTotals totals = TotalsOf(team, slice, memory.first);
  if (has_top_p) {
    SumBins(team, memory.first);
    team.Sync();
  }
  if (!has_top_p && argument.NeedsCuts()) {
    result.cut = CutOfAll(team, TeamRow<kDType, kPatched>(team, argument.rows, row).slice);
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
    const bool is_known = contenders > 0 && memory.boundary.top_count <= kMostAboveBins &&
                          totals.read.mass < INFINITY && totals.read.IsKnown();
    const KnownMasses masses =
        MassesOf(team, memory.boundary, unit, totals.read, params.top_p, vocab);
    FindBoundary(block, memory.first, bins, masses, vocab, memory.boundary);
    const int32_t id = !is_known || argument.NeedsCuts() ? -1 : draw([&](uint64_t token) {
      return KeepingOf(token, unit, bins, masses, memory.boundary, params.profile.ties);
    });
    if (id >= 0) result.id = id;
    if (team.thread() == 0) memory.drawn = id;
    if (argument.NeedsCuts()) {
      const Band band = FindBand(block, memory.first, bins, memory.boundary);
      if (team.thread() == 0) memory.band = band;
    }
  }
  if (!argument.NeedsCuts()) {
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
  // The largest value of a patched row is not known where contenders are missing: there is no band.
  if (kPatched && team.IsFirstThread() && contenders < 0) memory.band = {INFINITY, -INFINITY};
  team.Sync();
  const Band band = *team.Of(0, &memory.band);
  result.id = kUndecided;
  slice.DropMarks();
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
template <DType kDType, bool kPatched, class Extension = DefaultExtension>
__device__ bool SampleByGuess(const Team& team, SampleMemory& memory,
                              const SampleArgument& argument, int row,
                              const Extension& extension = {}) {
  VectorSlice<kDType, kPatched> slice(team, argument.rows, row);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  TeamBroadcast broadcast(team, memory.broadcast);
  Clear(team, memory.first.list);  // before another block adds to this one's list
  BeginRow(team, memory.start);
  const SelectParams& params = memory.start.params;
  StartRow(team, argument.rows, row, slice, RoomBesideList(memory.first), loaded, memory.start,
           [&] { memory.plan = extension.PlanOf(params, slice.vocab(), slice.kElements); });
  if (team.thread() / kWarpSize == 1) {  // while the first one guesses a threshold
    memory.are_valid =
        semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(memory.start.key);
  }
  // The first thread has the result.
  auto is_decided = [&](const TokenResult& result) {
    const bool is_certain = result.id != kUndecided;
    if (team.IsFirstThread() && is_certain) argument.Set(row, result, RowPath::kCertified);
    return broadcast.Send(is_certain ? 1 : 0) != 0;
  };
  TopPlan plan = memory.plan;
  // A mask may leave so few tokens that the first vectors have none: all are listed.
  const bool lists_all = kPatched && HasNoFilter(params, argument.rows.vocab) &&
                         LargestOfFirst(team, memory.start) == -INFINITY;
  if (lists_all) plan = {kListedNucleus, true};
  ListedTop top;
  auto moments = extension.template MomentsOf<kPatched>(params);
  if (plan.needed > 0) {
    top = ListTop(team, slice, loaded, memory.start, memory.first, plan, moments);
    if (lists_all && !top.has_all) top.size = -1;
  } else {
    team.SyncBlock();
  }
  if (!memory.are_valid) return false;
  if (plan.needed > 0) {
    if constexpr (Extension::kHasOwnRows) {
      if (extension.IsOwn(params)) {
        if constexpr (Extension::kGuesses) {
          if (is_decided(extension.Guess(argument, top, moments, slice.Patches()))) return true;
        }
        return is_decided(extension.template Sample<kDType, kPatched>(argument, row, top));
      }
    }
    TokenResult result;
    result.id = kUndecided;
    if (team.rank() == 0 && top.size > 0) {
      result = SampleFromTop(team, memory, top, plan, argument);
    }
    if (is_decided(result)) return true;
    slice.LoadFirst(loaded);
    slice.PatchFirst(loaded);
  }
  if (argument.method != DrawMethod::kGumbel) return false;
  const bool has_top_p = IsNucleusAlone(team, params, argument.rows.vocab);
  if (!has_top_p && !HasNoFilter(params, argument.rows.vocab)) return false;
  return is_decided(SampleByNoise(team, memory, slice, loaded, argument, row, has_top_p));
}

// Not inline: what it needs is not in the way of the guesses, which are the rule.
template <DType kDType, bool kPatched>
__device__ __noinline__ void SampleByDefinition(const SampleArgument& argument, int index) {
  if constexpr (kPatched) AwaitKernelBefore();  // as ForEachPatch does
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const TeamRow<kDType, kPatched> row(team, argument.rows, index);
  const TokenResult result =
      SampleSlice(team, memory.first.find, row.slice, row.Scan(team, argument.rows.limits),
                  row.params, row.key, argument.method);
  if (team.IsFirstThread()) argument.Set(index, result, RowPath::kDefinition);
}

template <DType kDType, bool kPatched, class Extension = DefaultExtension>
__global__ void __launch_bounds__(kMostThreads)
    SampleKernel(const __grid_constant__ SampleArgument argument) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const int row = TeamIndex(team);
  LetNextKernelStart();
  if (!SampleByGuess<kDType, kPatched, Extension>(team, memory, argument, row)) {
    SampleByDefinition<kDType, kPatched>(argument, row);
  }
}

template <bool kPatched, class Extension = DefaultExtension>
const void* SampleKernelFor(DType dtype) {
  return ForDType(dtype, SampleKernel<DType::kF32, kPatched, Extension>,
                  SampleKernel<DType::kBf16, kPatched, Extension>,
                  SampleKernel<DType::kF16, kPatched, Extension>);
}

}  // namespace

// Compiled by themselves, because each takes as long as the first.
const void* PatchedSampleKernelFor(DType dtype);
const void* TypicalSampleKernelFor(DType dtype);
const void* PatchedTypicalSampleKernelFor(DType dtype);

}  // namespace sluice::cuda
