// Qrita (2026), its second kernel: the rules on the whole row, with pivots for every boundary.
// Exact for every row and any parameters.
#include "cuda/row_by_definition.cuh"
#include "research/qrita/pivot_find.cuh"
#include "research/qrita/qrita.h"
#include "research/qrita/truncation.cuh"
#include "select/cuda/row_rules.cuh"

namespace sluice::research {

using namespace cuda;

namespace {

template <class Pivots>
struct SearchMemory {
  TeamMemory team;
  Pivots pivots;
};

template <DType kDType, class Pivots>
__global__ void __launch_bounds__(kMostThreads)
    SearchKernel(const __grid_constant__ QritaArgument argument) {
  __shared__ SearchMemory<Pivots> memory;
  const Team team(memory.team);
  Cut cut = argument.cuts[TeamIndex(team)];
  if (!argument.takes_all && cut.count != kUndecided) return;
  const TeamRow<kDType> row(team, argument.rows, TeamIndex(team));
  const semantics::RowScan scan = row.Scan(team, argument.rows.limits);
  if (scan.status == RowStatus::kOk) {
    RowRules rules(team, memory.pivots, row.slice, scan, row.params, row.key);
    cut = rules.Select(nullptr);
  } else {
    cut = semantics::CutOfStatus(scan.status);
  }
  team.Sync();  // all threads have read whether it is decided
  if (!team.IsFirstThread()) return;
  argument.cuts[row.index] = cut;
  // From a nucleus that never fits there is nothing to learn.
  if (argument.table == nullptr || cut.status != RowStatus::kOk) return;
  const RowNote note = argument.notes[row.index];
  if (note.deviation > 0 && cut.count < argument.room - argument.room / 8) {
    Learn(EntryOf(*argument.table, row.params), note, argument.room,
          (cut.lower - note.mean) / note.deviation);
  }
}

template <class Pivots>
void LaunchWith(DType dtype, QritaArgument argument, void* stream) {
  LaunchOverRows({ForDType(dtype, SearchKernel<DType::kF32, Pivots>,
                           SearchKernel<DType::kBf16, Pivots>, SearchKernel<DType::kF16, Pivots>),
                  WideShapeForRows(argument.rows.rows), 0},
                 argument.rows.rows, &argument, stream);
}

}  // namespace

void LaunchSearch(QritaVariant variant, DType dtype, const QritaArgument& argument, void* stream) {
  switch (variant) {
    case QritaVariant::kBinary:
      return LaunchWith<PivotMemory<1, true>>(dtype, argument, stream);
    case QritaVariant::kNoDup:
      return LaunchWith<PivotMemory<3, false>>(dtype, argument, stream);
    default:
      return LaunchWith<PivotMemory<3, true>>(dtype, argument, stream);
  }
}

}  // namespace sluice::research
