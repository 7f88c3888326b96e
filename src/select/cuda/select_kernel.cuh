// Select, Mask and both in one. A kernel decides what the top of a row certifies, in one read, or
// else its nucleus, in two, and every other row by the definition. Another one masks by given Cuts,
// and reports masses. Rows that are masked have no patches.
#pragma once

#include "cuda/cut_ids.cuh"
#include "cuda/row_by_definition.cuh"
#include "cuda/team_broadcast.cuh"
#include "select/cuda/binned_top.cuh"
#include "select/cuda/nucleus.cuh"
#include "select/cuda/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -1;  // the count of a Cut that is left to the definition

struct SelectArgument {
  RowsArgument rows;
  Cut* cuts;
  CutMass* masses;  // null: not requested
  bool is_given;    // Mask: the Cuts exist
  bool masks;

  template <bool kPatched>
  __device__ bool Masks() const {
    return !kPatched && masks;
  }
};

template <DType kDType, bool kPatched>
__device__ void MaskRow(const VectorSlice<kDType, kPatched>& slice, void* row, const CutIds& ids) {
  slice.MaskUnless(row, [&](float x, int id) { return ids.Keeps(x, id); });
}

// In dynamic shared memory.
struct SelectMemory {
  TeamMemory team;
  RowPrologue start;
  TopPlan plan;
  bool are_valid;
  ScoreMemory scores;
  WeightHistogramMemory first;
  Boundary boundary;
  Nucleus nucleus;
  // Sent by the first block to the others:
  Band band;
  CutIds ids;
  bool has_band;
  BroadcastMemory broadcast;
};
static_assert(sizeof(SelectMemory) <= kMostSharedBytes);

__device__ inline SelectMemory& MemoryOfBlock() {
  extern __shared__ __align__(16) unsigned char shared[];
  return *reinterpret_cast<SelectMemory*>(shared);
}

// From the listed top, which is too long for a token a thread. By the first block; not inline: what
// it needs is not in the way of shorter lists.
__device__ __noinline__ Cut SelectFromMany(const ListedTokens& from) {
  SelectMemory& memory = MemoryOfBlock();
  const Team block = Team(memory.team).Block();
  Cut cut;
  cut.count = kUndecided;
  const BinnedTop kept = SelectByBins(block, from, memory.start);
  if (kept.last == 0) return cut;
  cut = CutOfBins(block, from, kept);
  if (block.thread() == 0) memory.ids = {cut.upper, cut.lower, 0, IdOf(kept.last)};
  return cut;
}

// As above, by any rules.
__device__ __noinline__ Cut SelectFromList(const uint64_t* tokens, int size) {
  SelectMemory& memory = MemoryOfBlock();
  const Team block = Team(memory.team).Block();
  const TokenSlice slice(block, tokens, size);
  RowRules rules(block, memory.first.find, slice, ScanRow(block, slice), memory.start.params,
                 memory.start.key);
  const Cut cut = rules.Select(nullptr);
  const CutIds ids = ResolveTies(block, memory.first.find, slice, cut);
  if (block.thread() == 0) memory.ids = ids;
  return cut;
}

// The outcome that the first block broadcasts of a row with a listed top.
enum TopOutcome : uint32_t {
  kGoOn,      // it does not decide the row
  kDecided,   // and nothing is masked
  kMaskAll,   // the first block puts back what is kept
  kMaskByIds  // of the first block
};

// Whether the listed top decides the row. Where the list certainly holds what is kept, the row is
// overwritten while the first block still looks for it.
template <DType kDType, bool kPatched>
__device__ bool SelectByTop(const Team& team, SelectMemory& memory, const SelectArgument& argument,
                            int index, const VectorSlice<kDType, kPatched>& slice,
                            const ListedTop& top, TeamBroadcast& broadcast) {
  const Team block = team.Block();
  const TopPlan plan = memory.plan;
  const bool is_listed = team.rank() == 0 && top.size > 0;
  TopOutcome outcome = kGoOn;
  bool is_early = false;
  ListedTokens pruned;
  TopSelection selection = {};
  auto select = [&] {
    selection = SelectSorted(team, pruned, memory.scores, memory.start,
                             plan.is_whole ? &top : nullptr, argument.rows.vocab);
    if (team.IsFirstThread() && selection.kept.IsCertain()) argument.cuts[index] = selection.cut;
  };
  if (is_listed) {
    pruned = PruneTop(team, memory.first.list, top, plan, memory.start, argument.rows.vocab);
    const bool is_short = pruned.size <= block.threads();
    if (is_short && !plan.is_whole && argument.Masks<kPatched>() &&
        memory.first.list.has_zero == 0) {
      outcome = kMaskAll;
      is_early = true;
    } else if (is_short) {
      select();
      if (selection.kept.IsCertain()) {
        outcome = !argument.Masks<kPatched>()       ? kDecided
                  : memory.first.list.has_zero == 0 ? kMaskAll
                                                    : kMaskByIds;
      }
      if (block.thread() == 0) memory.ids = selection.ids;
    } else if (!plan.is_whole) {
      Cut cut;
      cut.count = kUndecided;
      if (BinsDecide(memory.start.params)) cut = SelectFromMany(pruned);
      if (cut.count == kUndecided) cut = SelectFromList(pruned.tokens, pruned.size);
      if (block.thread() == 0) argument.cuts[index] = cut;
      outcome = argument.Masks<kPatched>() ? kMaskByIds : kDecided;
    }
  }
  outcome = static_cast<TopOutcome>(broadcast.Send(outcome));
  if constexpr (!kPatched) {
    void* row = RowOf(argument.rows, index);
    if (outcome == kMaskByIds) {
      team.Sync();  // the ids are written
      const CutIds ids = *team.Of(0, &memory.ids);
      team.Sync();  // the first block may leave
      MaskRow(slice, row, ids);
    } else if (outcome == kMaskAll) {
      if (is_early) select();
      slice.MaskAll(row);
      team.Sync();
      if (selection.kept.Keeps(team.thread())) {
        static_cast<typename ElementOf<kDType>::Type*>(row)[selection.kept.id] =
            Narrow<kDType>(selection.kept.x);
      }
    }
  }
  return outcome != kGoOn;
}

// The first thread has the Cut.
template <DType kDType, bool kPatched>
__device__ Cut SelectByNucleus(const Team& team, SelectMemory& memory, void* row,
                               VectorSlice<kDType, kPatched>& slice, FirstVectors& loaded,
                               int vocab, bool masks) {
  const SelectParams& params = memory.start.params;
  Cut undecided;
  undecided.count = kUndecided;
  const MarkRoom room = RoomBesideBins(memory.first);
  slice.MarkPatches(team, room.data, room.bytes);
  Clear(team, memory.first);
  Clear(team, memory.boundary);
  WeightUnit unit;
  if (!GuessUnit<kDType>(team, loaded, memory.start, memory.start.scales.filter, params.top_p,
                         OctavesToFloor(params.top_p, slice.SampledShare()), unit)) {
    return undecided;
  }
  ReadWeightHistogram<true, false>(team, slice, loaded, unit, memory.start.key,
                                   LargestOfFirst(team, memory.start), memory.first);
  team.Sync();
  const RowTotals totals = TotalsOf(team, slice, memory.first);
  SumBins(team, memory.first);
  team.Sync();
  const int above_bins = ContendersOf(memory.first);
  if (team.rank() == 0) {
    const Team block = team.Block();
    const WeightBins bins(unit);
    ListAboveBins(block, memory.first, above_bins, bins, memory.boundary);
    const KnownMasses masses =
        MassesOf(team, memory.boundary, unit, totals.read, params.top_p, vocab);
    FindBoundary(block, memory.first, bins, masses, vocab, memory.boundary);
    const Band band = FindBand(block, memory.first, bins, memory.boundary);
    if (team.thread() == 0) {
      memory.band = band;
      memory.has_band = above_bins >= 0 && memory.boundary.top_count <= kMostAboveBins &&
                        totals.read.mass < INFINITY && totals.read.IsKnown();
    }
  }
  team.Sync();
  const bool has_band = *team.Of(0, &memory.has_band);
  const Band band = *team.Of(0, &memory.band);
  team.Sync();
  if (!has_band) return undecided;
  slice.DropMarks();
  const Nucleus nucleus =
      SelectInBand(team, slice, band, totals.max, params, memory.first.list, memory.nucleus);
  if (nucleus.last_at_lower < 0) return undecided;
  if (masks) MaskRow(slice, row, {INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower});
  return nucleus.cut;
}

// Not inline: inlined, its comparisons took registers from the first read of a float32 row: the
// spills grew from 110 to 134 bytes, and a mask took 1 us more. (notes/gpu-sampling.md)
__device__ __noinline__ TopPlan PlanOutOfLine(const SelectParams& params, int vocab, int elements) {
  return PlanOfTop(params, vocab, elements);
}

template <DType kDType>
__device__ TopPlan PlanOfSelection(const SelectParams& params, int vocab, int elements) {
  // A bfloat16 row: the call made a mask of one row 2.6 us slower, 9.9 to 12.4.
  return kDType == DType::kF32 ? PlanOutOfLine(params, vocab, elements)
                               : PlanOfTop(params, vocab, elements);
}

// Whether a guess decides the row.
template <DType kDType, bool kPatched>
__device__ bool SelectByGuess(const Team& team, SelectMemory& memory,
                              const SelectArgument& argument, int index) {
  VectorSlice<kDType, kPatched> slice(team, argument.rows, index);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  TeamBroadcast broadcast(team, memory.broadcast);
  Clear(team, memory.first.list);  // before another block reads this one
  BeginRow(team, memory.start);
  const SelectParams& params = memory.start.params;
  StartRow(team, argument.rows, index, slice, RoomBesideList(memory.first), loaded, memory.start,
           [&] { memory.plan = PlanOfSelection<kDType>(params, slice.vocab(), slice.kElements); });
  if (team.thread() / kWarpSize == 1) {  // while the first one guesses a threshold
    memory.are_valid =
        semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(memory.start.key);
  }
  const TopPlan plan = memory.plan;
  ListedTop top;
  if (plan.needed > 0) {
    NoMoments moments;
    top = ListTop(team, slice, loaded, memory.start, memory.first, plan, moments);
  } else {
    team.SyncBlock();
  }
  if (!memory.are_valid) return false;
  if (plan.needed > 0) {
    if (SelectByTop(team, memory, argument, index, slice, top, broadcast)) return true;
    slice.LoadFirst(loaded);
    slice.PatchFirst(loaded);
  }
  const int vocab = argument.rows.vocab;
  if (!IsNucleusAlone(team, params, vocab)) return false;
  // The first thread has the Cut.
  const Cut cut = SelectByNucleus(team, memory, RowOf(argument.rows, index), slice, loaded, vocab,
                                  argument.Masks<kPatched>());
  const bool is_certain = cut.count != kUndecided;
  if (team.IsFirstThread() && is_certain) argument.cuts[index] = cut;
  return broadcast.Send(is_certain ? kDecided : kGoOn) != kGoOn;
}

// Selects, unless the Cut is given, and masks.
template <DType kDType, bool kPatched>
__device__ void SelectByDefinition(const Team& team, FindMemory& memory,
                                   const SelectArgument& argument, int index) {
  const TeamRow<kDType, kPatched> row(team, argument.rows, index);
  Cut cut;
  if (argument.is_given) {
    cut = argument.cuts[index];
  } else {
    const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
    CutMass* mass = argument.masses == nullptr ? nullptr : argument.masses + index;
    if (scan.status == RowStatus::kOk) {
      RowRules rules(team, memory, row.slice, scan, row.params, row.key);
      cut = rules.Select(mass);
    } else {
      cut = semantics::CutOfStatus(scan.status);
      if (mass != nullptr && team.IsFirstThread()) *mass = CutMass{};
    }
    if (team.IsFirstThread()) argument.cuts[index] = cut;
  }
  if (argument.Masks<kPatched>() && cut.status == RowStatus::kOk) {
    MaskRow(VectorSlice<kDType, kPatched>(team, argument.rows, index), row.data,
            ResolveTies(team, memory, row.slice, cut));
  }
}

// Not inline: what it needs is not in the way of the guesses, which are the rule.
template <DType kDType, bool kPatched>
__device__ __noinline__ void SelectUndecided(const SelectArgument& argument, int index) {
  SelectMemory& memory = MemoryOfBlock();
  SelectByDefinition<kDType, kPatched>(Team(memory.team), memory.first.find, argument, index);
}

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    SelectKernel(const __grid_constant__ SelectArgument argument) {
  SelectMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const int row = TeamIndex(team);
  if (!SelectByGuess<kDType, kPatched>(team, memory, argument, row)) {
    SelectUndecided<kDType, kPatched>(argument, row);
  }
}

// In shared memory.
struct DefinitionMemory {
  TeamMemory team;
  FindMemory find;
};

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    SelectByDefinitionKernel(const __grid_constant__ SelectArgument argument) {
  __shared__ DefinitionMemory memory;
  const Team team(memory.team);
  SelectByDefinition<kDType, kPatched>(team, memory.find, argument, TeamIndex(team));
}

// by_definition: the one that masks by given Cuts and reports masses.
template <bool kPatched>
const void* SelectKernelFor(DType dtype, bool by_definition) {
  return by_definition
             ? ForDType(dtype, SelectByDefinitionKernel<DType::kF32, kPatched>,
                        SelectByDefinitionKernel<DType::kBf16, kPatched>,
                        SelectByDefinitionKernel<DType::kF16, kPatched>)
             : ForDType(dtype, SelectKernel<DType::kF32, kPatched>,
                        SelectKernel<DType::kBf16, kPatched>, SelectKernel<DType::kF16, kPatched>);
}

}  // namespace

// Compiled by itself, because it takes as long as the other.
const void* PatchedSelectKernelFor(DType dtype, bool by_definition);

}  // namespace sluice::cuda
