// Select, Mask and both in one: by the top of the row where that is certain, else by the
// definition.
#include "backend/cut_ids.cuh"
#include "backend/rows.cuh"
#include "select/nucleus.cuh"

namespace sluice::cuda {
namespace {

struct SelectArgument {
  RowsArgument rows;
  Cut* cuts;             // null: not wanted
  CutMass* masses;       // null: not wanted
  const Cut* given;      // Mask: the Cuts; null: select them
  bool masks;
};

template <DType kDType>
__device__ void MaskRow(const TeamRow<kDType>& row, const CutIds& ids) {
  auto* elements = static_cast<typename RowSlice<kDType>::Element*>(row.data);
  row.slice.ForEach([&](float x, int id) {
    if (!ids.Keeps(x, id)) elements[id] = MaskedElement<kDType>();
  });
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

// Whether the top decided the row.
template <DType kDType>
__device__ bool SelectByTop(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                            const VectorSlice<kDType>& slice, FirstVectors<kDType>& loaded,
                            const SelectArgument& argument) {
  const int needed = TokensNeeded(row.params);
  if (needed == 0) return false;
  const int listed = ListTop(team, slice, loaded, memory.top, needed);
  if (listed <= 0) return false;
  const bool is_sorted = listed <= team.threads();
  TopSelection top = {};
  if (team.rank() == 0) {
    const Team block = team.Block();
    if (is_sorted) {
      const int size = PruneTop(block, memory.top, listed, needed);
      const Team first = block.FirstThreads(ThreadsToSort(size));
      if (first.thread() < first.threads()) {
        top = SelectSorted(first, memory.top, size, row.params, row.key);
      }
    } else {
      top = SelectListed(block, memory, listed, row.params, row.key);
    }
    if (argument.cuts != nullptr && team.thread() == 0) argument.cuts[row.index] = top.cut;
    if (team.thread() == 0) memory.top_cut = top.cut;
  }
  if (!argument.masks) return true;
  if (is_sorted) {
    MaskToTop(team, slice, row, top.kept);
  } else {
    team.Sync();
    const Cut cut = team.Of(0, &memory)->top_cut;
    team.Sync();
    MaskRow(row, ResolveTies(team, memory.find, row.slice, cut));
  }
  return true;
}

// Whether top-p alone decided the row.
template <DType kDType>
__device__ bool SelectByNucleus(const Team& team, SelectMemory& memory, const TeamRow<kDType>& row,
                                const VectorSlice<kDType>& slice, FirstVectors<kDType>& loaded,
                                const SelectArgument& argument) {
  if (!IsNucleusAlone(team, row.params, argument.rows.vocab)) return false;
  NoVisitor nobody;
  Nucleus nucleus;
  if (!SelectNucleus(team, slice, loaded, memory, row.params, nobody, nucleus)) return false;
  if (argument.cuts != nullptr && team.IsFirstThread()) argument.cuts[row.index] = nucleus.cut;
  if (argument.masks) MaskRow(row, {INFINITY, nucleus.cut.lower, 0, nucleus.last_at_lower});
  return true;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads) SelectKernel(SelectArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  SelectMemory& memory = *reinterpret_cast<SelectMemory*>(shared);
  const Team team(memory.team);
  const TeamRow<kDType> row(team, argument.rows);
  Cut cut;
  if (argument.given != nullptr) {
    cut = argument.given[row.index];
  } else {
    if (argument.masses == nullptr && row.HasValidParams(argument.rows.limits)) {
      const VectorSlice<kDType> slice(team, argument.rows);
      FirstVectors<kDType> loaded;
      slice.LoadFirst(loaded);
      if (SelectByTop(team, memory, row, slice, loaded, argument) ||
          SelectByNucleus(team, memory, row, slice, loaded, argument)) {
        return;
      }
    }
    const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
    CutMass* mass = argument.masses == nullptr ? nullptr : argument.masses + row.index;
    if (scan.status == RowStatus::kOk) {
      RowRules rules(team, memory.find, row.slice, scan, row.params, row.key);
      cut = rules.Select(mass);
    } else {
      cut = semantics::CutOfStatus(scan.status);
      if (mass != nullptr && team.IsFirstThread()) *mass = CutMass{};
    }
    if (argument.cuts != nullptr && team.IsFirstThread()) argument.cuts[row.index] = cut;
  }
  if (argument.masks && cut.status == RowStatus::kOk) MaskRow(row, ResolveTies(team, memory.find, row.slice, cut));
}

void Launch(const LogitsView& logits, SelectArgument argument, void* stream) {
  const RowKernel kernel{ForDType(logits.dtype, SelectKernel<DType::kF32>,
                                  SelectKernel<DType::kBf16>, SelectKernel<DType::kF16>),
                         ShapeForRows(logits.rows), sizeof(SelectMemory)};
  LaunchOverRows(kernel, logits.rows, &argument, stream);
}

}  // namespace

void Select(const LogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
            DeviceArray<CutMass> masses, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckOneARow("masses", masses, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params), .cuts = cuts.data, .masses = masses.data,
          .given = nullptr, .masks = false},
         stream);
}

void Mask(const MutableLogitsView& logits, DeviceArray<const Cut> cuts, void* stream) {
  CheckRows(logits);
  CheckOneARow("cuts", cuts, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, {}), .cuts = nullptr, .masses = nullptr, .given = cuts.data,
          .masks = true},
         stream);
}

void SelectAndMask(const MutableLogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
                   void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params), .cuts = cuts.data, .masses = nullptr,
          .given = nullptr, .masks = true},
         stream);
}

}  // namespace sluice::cuda
