// Select, Mask and both in one. One kernel (two, where the first has few threads) decides what the
// top of a row or its nucleus certifies, in one read or two; another does what is left by the
// definition, and given Cuts and masses.
#include "backend/cut_ids.cuh"
#include "backend/rows.cuh"
#include "select/nucleus.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int32_t kUndecided = -1;  // the count of a Cut that the first kernel leaves to the second

struct SelectArgument {
  RowsArgument rows;
  Cut* cuts;
  CutMass* masses;  // null: not wanted
  bool is_given;    // Mask: the Cuts are there
  bool masks;
  bool is_second = false;  // of two kernels alike: the first has decided rows
};

template <DType kDType>
__device__ void MaskRow(const VectorSlice<kDType>& slice, void* row, const CutIds& ids) {
  slice.MaskUnless(row, [&](float x, int id) { return ids.Keeps(x, id); });
}

// By the whole team, of which the first block has the selection. The top is a list of tokens, so
// the row is overwritten without being read, and they are put back.
template <DType kDType>
__device__ void MaskToTop(const Team& team, const VectorSlice<kDType>& slice,
                          const TeamRow<kDType>& row, const KeptTop& kept) {
  auto* elements = static_cast<typename RowSlice<kDType>::Element*>(row.data);
  const bool is_mine = team.rank() == 0 && kept.IsMine();
  const auto element = is_mine ? elements[kept.id] : MaskedElement<kDType>();  // -0 stays -0
  team.Sync();
  slice.MaskAll(row.data);
  team.Sync();
  if (is_mine) elements[kept.id] = element;
}

// In dynamic shared memory.
struct SelectMemory {
  TeamMemory team;
  RowStart start;
  ScoreMemory scores;
  FirstReadMemory first;
  Boundary boundary;
  Nucleus nucleus;
  Band band;  // of the first block, for the others
  bool is_decided;
};
static_assert(sizeof(SelectMemory) <= kMostSharedBytes);

// The first thread has the Cut.
template <DType kDType>
__device__ Cut SelectByTop(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                           const VectorSlice<kDType>& slice, FirstVectors& loaded, int needed,
                           bool masks) {
  TopSelection top = {};
  top.cut.count = kUndecided;
  TokenList& list = memory.first.list;
  const int listed = ListTop(team, slice, loaded, memory.start, list, needed);
  if (team.rank() == 0) {
    const Team block = team.Block();
    bool is_decided = listed > 0;
    if (is_decided) {
      const ListedTokens pruned = PruneTop(block, list, {list.sorted, list.key, listed}, needed);
      is_decided = pruned.size <= block.threads();
      if (is_decided) {
        top = SelectSorted(block, pruned, memory.scores, memory.start.params, memory.start.key);
      }
    }
    if (block.thread() == 0) {
      memory.is_decided = is_decided;
      if (!is_decided) top.cut.count = kUndecided;
    }
  }
  if (!masks) return top.cut;
  team.Sync();
  const bool is_decided = *team.Of(0, &memory.is_decided);
  team.Sync();
  if (is_decided) MaskToTop(team, slice, row, top.kept);
  return top.cut;
}

template <DType kDType>
__device__ Cut SelectByNucleus(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                               const VectorSlice<kDType>& slice, FirstVectors& loaded, int vocab,
                               bool masks) {
  const SelectParams& params = memory.start.params;
  Cut undecided;
  undecided.count = kUndecided;
  Clear(team, memory.first);
  Clear(team, memory.boundary);
  WeightUnit unit;
  if (!GuessUnit<kDType>(team, loaded, memory.start, semantics::ScalesOf(params).filter,
                         params.top_p, unit)) {
    return undecided;
  }
  FirstRead<true, false>(team, slice, loaded, unit, memory.start.key, memory.first);
  team.Sync();
  const RowTotals totals = TotalsOf(team, memory.first);
  SumBins(team, memory.first);
  const int above_bins = PullLists(team, memory.first.contenders).size;
  if (team.rank() == 0) {
    const Team block = team.Block();
    const WeightBins bins(unit);
    ListAboveBins(block, memory.first, above_bins, bins, memory.boundary);
    const KnownMasses masses =
        MassesOf(team, memory.boundary, unit, totals.mass, params.top_p, vocab);
    FindBoundary(block, memory.first, bins, masses, vocab, memory.boundary);
    const Band band = FindBand(block, memory.first, bins, memory.boundary);
    if (team.thread() == 0) {
      memory.band = band;
      memory.is_decided =
          above_bins >= 0 && memory.boundary.top_count <= kMostAboveBins && totals.mass < INFINITY;
    }
  }
  team.Sync();
  const bool has_band = *team.Of(0, &memory.is_decided);
  const Band band = *team.Of(0, &memory.band);
  team.Sync();
  if (!has_band) return undecided;
  const Nucleus nucleus =
      SelectInBand(team, slice, band, totals.max, params, memory.first.list, memory.nucleus);
  if (nucleus.last_at_lower < 0) return undecided;
  if (masks) MaskRow(slice, row.data, {INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower});
  return nucleus.cut;
}

template <DType kDType>
__device__ void SelectRow(const Team& team, SelectMemory& memory, const SelectArgument& argument,
                          int index) {
  team.ArriveAtBlocks();
  const VectorSlice<kDType> slice(team, argument.rows, index);
  const TeamRow<kDType> row(team, argument.rows, index);
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  StartRow<kDType>(team, argument.rows, index, loaded, memory.start);
  const SelectParams& params = memory.start.params;
  Cut cut;
  cut.count = kUndecided;
  if (semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(memory.start.key)) {
    if (const int needed = TokensNeeded(team, params); needed > 0) {
      cut = SelectByTop(team, memory, row, slice, loaded, needed, argument.masks);
    } else if (IsNucleusAlone(team, params, argument.rows.vocab)) {
      cut = SelectByNucleus(team, memory, row, slice, loaded, argument.rows.vocab, argument.masks);
    }
  }
  if (team.IsFirstThread()) argument.cuts[index] = cut;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SelectKernel(const __grid_constant__ SelectArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectMemory& memory = *reinterpret_cast<SelectMemory*>(shared);
  const Team team(memory.team);
  StartNextKernel();
  AwaitKernelBefore();
  ForEachRow(
      team, argument.rows,
      [&](int row) { return !argument.is_second || argument.cuts[row].count == kUndecided; },
      [&](int row) { SelectRow<kDType>(team, memory, argument, row); });
}

// In shared memory.
struct DefinitionMemory {
  TeamMemory team;
  FindMemory find;
};

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SelectByDefinitionKernel(const __grid_constant__ SelectArgument argument) {
  __shared__ DefinitionMemory memory;
  const Team team(memory.team);
  AwaitKernelBefore();
  const bool takes_all = argument.is_given || argument.masses != nullptr;
  auto select = [&](int index) {
    Cut cut = argument.cuts[index];
    const TeamRow<kDType> row(team, argument.rows, index);
    if (!argument.is_given) {
      const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
      CutMass* mass = argument.masses == nullptr ? nullptr : argument.masses + index;
      if (scan.status == RowStatus::kOk) {
        RowRules rules(team, memory.find, row.slice, scan, row.params, row.key);
        cut = rules.Select(mass);
      } else {
        cut = semantics::CutOfStatus(scan.status);
        if (mass != nullptr && team.IsFirstThread()) *mass = CutMass{};
      }
      if (team.IsFirstThread()) argument.cuts[index] = cut;
    }
    if (argument.masks && cut.status == RowStatus::kOk) {
      MaskRow(VectorSlice<kDType>(team, argument.rows, index), row.data,
              ResolveTies(team, memory.find, row.slice, cut));
    }
  };
  ForEachRow(
      team, argument.rows,
      [&](int row) { return takes_all || argument.cuts[row].count == kUndecided; }, select);
}

void Launch(const LogitsView& logits, SelectArgument argument, void* stream) {
  if (!argument.is_given && argument.masses == nullptr) {
    RowKernel kernel{ForDType(logits.dtype, SelectKernel<DType::kF32>, SelectKernel<DType::kBf16>,
                              SelectKernel<DType::kF16>),
                     ShapeForRows(logits.rows), sizeof(SelectMemory)};
    LaunchOverRows(kernel, logits.rows, &argument, stream);
    if (kernel.shape.threads < kMostThreads) {  // k may be too large for so few
      argument.is_second = true;
      kernel.shape = LargeShapeForRows(logits.rows);
      LaunchOverRowsLeft(kernel, logits.rows, &argument, stream);
    }
  }
  LaunchOverRowsLeft(
      {ForDType(logits.dtype, SelectByDefinitionKernel<DType::kF32>,
                SelectByDefinitionKernel<DType::kBf16>, SelectByDefinitionKernel<DType::kF16>),
       WideShapeForRows(logits.rows), 0},
      logits.rows, &argument, stream);
}

}  // namespace

void Select(const LogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
            DeviceArray<CutMass> masses, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckOneARow("masses", masses, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .cuts = cuts.data,
          .masses = masses.size == 0 ? nullptr : masses.data,
          .is_given = false,
          .masks = false},
         stream);
}

void Mask(const MutableLogitsView& logits, DeviceArray<const Cut> cuts, void* stream) {
  CheckRows(logits);
  CheckOneARow("cuts", cuts, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, {}),
          .cuts = const_cast<Cut*>(cuts.data),  // not written: they are given
          .masses = nullptr,
          .is_given = true,
          .masks = true},
         stream);
}

void SelectAndMask(const MutableLogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
                   void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .cuts = cuts.data,
          .masses = nullptr,
          .is_given = false,
          .masks = true},
         stream);
}

}  // namespace sluice::cuda
