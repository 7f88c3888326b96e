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
  NucleusMemory nucleus;
  int top_size;  // of the first block, for the others
};

// The first thread has the Cut.
template <DType kDType>
__device__ Cut SelectByTop(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                           const VectorSlice<kDType>& slice, FirstVectors<kDType>& loaded,
                           int needed, bool masks) {
  TopSelection top = {};
  top.cut.count = kUndecided;
  TokenList& list = memory.nucleus.list;
  const int listed = ListTop(team, slice, loaded, list, needed);
  if (listed <= 0) return top.cut;
  if (team.rank() == 0) {
    const Team block = team.Block();
    const int size = PruneTop(block, list, listed, needed);
    if (block.thread() == 0) memory.top_size = size;
    const FirstThreads first = block.FirstThreads(ThreadsToSort(size));
    if (size <= block.threads() && first.thread() < first.threads()) {
      top = SelectSorted(first, list, size, row.params, row.key);
    }
  }
  if (!masks) return top.cut;
  team.Sync();
  const bool is_decided = team.Of(0, &memory)->top_size <= team.threads();
  team.Sync();
  if (is_decided) MaskToTop(team, slice, row, top.kept);
  return top.cut;
}

template <DType kDType>
__device__ Cut SelectByNucleus(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                               const VectorSlice<kDType>& slice, FirstVectors<kDType>& loaded,
                               bool masks) {
  NoVisitor nobody;
  Nucleus nucleus;
  if (!SelectNucleus(team, slice, loaded, memory.nucleus, row.params, nobody, nucleus)) {
    nucleus.cut.count = kUndecided;
  } else if (masks) {
    MaskRow(slice, row.data, {INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower});
  }
  return nucleus.cut;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SelectKernel(const __grid_constant__ SelectArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectMemory& memory = *reinterpret_cast<SelectMemory*>(shared);
  const Team team(memory.team);
  if (argument.is_second && argument.cuts[RowIndex(team)].count != kUndecided) return;
  const VectorSlice<kDType> slice(team, argument.rows);
  const TeamRow<kDType> row(team, argument.rows);
  FirstVectors<kDType> loaded;
  slice.LoadFirst(loaded);  // on the way while the parameters come
  Cut cut;
  cut.count = kUndecided;
  if (row.HasValidParams(argument.rows.limits)) {
    if (const int needed = TokensNeeded(team, row.params); needed > 0) {
      cut = SelectByTop(team, memory, row, slice, loaded, needed, argument.masks);
    } else if (IsNucleusAlone(team, row.params, argument.rows.vocab)) {
      cut = SelectByNucleus(team, memory, row, slice, loaded, argument.masks);
    }
  }
  if (team.IsFirstThread()) argument.cuts[row.index] = cut;
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
  Cut cut = argument.cuts[RowIndex(team)];
  const bool is_decided =
      !argument.is_given && argument.masses == nullptr && cut.count != kUndecided;
  if (is_decided) return;
  const TeamRow<kDType> row(team, argument.rows);
  if (!argument.is_given) {
    const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
    CutMass* mass = argument.masses == nullptr ? nullptr : argument.masses + row.index;
    if (scan.status == RowStatus::kOk) {
      RowRules rules(team, memory.find, row.slice, scan, row.params, row.key);
      cut = rules.Select(mass);
    } else {
      cut = semantics::CutOfStatus(scan.status);
      if (mass != nullptr && team.IsFirstThread()) *mass = CutMass{};
    }
    team.Sync();  // everybody has read whether it is decided
    if (team.IsFirstThread()) argument.cuts[row.index] = cut;
  }
  if (argument.masks && cut.status == RowStatus::kOk) {
    MaskRow(VectorSlice<kDType>(team, argument.rows), row.data,
            ResolveTies(team, memory.find, row.slice, cut));
  }
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
      LaunchOverRows(kernel, logits.rows, &argument, stream);
    }
  }
  LaunchOverRows(
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
