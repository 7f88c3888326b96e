// Select, Mask and both in one, by the definition: the way that is right for every row.
#include "backend/cut_ids.cuh"
#include "backend/rows.cuh"
#include "select/row_rules.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

struct SelectArgument {
  RowsArgument rows;
  Cut* cuts;             // null: not wanted
  CutMass* masses;       // null: not wanted
  const Cut* given;      // Mask: the Cuts; null: select them
  bool masks;
};

template <DType kDType>
__device__ void MaskRow(const Team& team, FindMemory& memory, const TeamRow<kDType>& row,
                        const Cut& cut) {
  using Element = typename RowSlice<kDType>::Element;
  const CutIds ids = ResolveTies(team, memory, row.slice, cut);
  Element masked;
  if constexpr (kDType == DType::kF32) {
    masked = -INFINITY;
  } else {
    masked = kDType == DType::kBf16 ? 0xff80 : 0xfc00;
  }
  Element* elements = static_cast<Element*>(row.data);
  row.slice.ForEach([&](float x, int id) {
    if (!ids.Keeps(x, id)) elements[id] = masked;
  });
}

template <DType kDType>
__global__ void __launch_bounds__(kThreads) SelectKernel(SelectArgument argument) {
  __shared__ TeamMemory team_memory;
  __shared__ FindMemory find_memory;
  const Team team(team_memory);
  const TeamRow<kDType> row(team, argument.rows);
  Cut cut;
  if (argument.given != nullptr) {
    cut = argument.given[row.index];
  } else {
    const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
    CutMass* mass = argument.masses == nullptr ? nullptr : argument.masses + row.index;
    if (scan.status == RowStatus::kOk) {
      RowRules rules(team, find_memory, row.slice, scan, row.params, row.key);
      cut = rules.Select(mass);
    } else {
      cut = semantics::CutOfStatus(scan.status);
      if (mass != nullptr && team.IsFirstThread()) *mass = CutMass{};
    }
    if (argument.cuts != nullptr && team.IsFirstThread()) argument.cuts[row.index] = cut;
  }
  if (argument.masks && cut.status == RowStatus::kOk) MaskRow(team, find_memory, row, cut);
}

void Launch(const LogitsView& logits, SelectArgument argument, void* stream) {
  const RowKernel kernel{ForDType(logits.dtype, SelectKernel<DType::kF32>,
                                  SelectKernel<DType::kBf16>, SelectKernel<DType::kF16>),
                         kThreads, BlocksForRows(logits.rows)};
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
