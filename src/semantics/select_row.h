// One row from adjusted values to a Cut: its status, its sorted tokens, what each filter left.
#pragma once

#include "semantics/row_status.h"
#include "semantics/select.h"
#include "semantics/validate.h"

namespace sluice::semantics {

struct SelectedRow {
  RowStatus status = RowStatus::kOk;
  SortedRow sorted = {nullptr, 0};  // empty with a status
  Interval kept = {0, 0};           // of `sorted`
  SelectTrace trace = {};           // what each filter left, to explain it

  SLUICE_HD Cut ToCut() const {
    return status == RowStatus::kOk ? CutOfInterval(sorted, kept) : CutOfStatus(status);
  }
};

// workspace: row.size tokens; the result points into it.
SLUICE_HD inline SelectedRow SelectRow(const Row& row, const SelectParams& params,
                                       const NoiseKey& key, const Limits& limits,
                                       Token* workspace) {
  SelectedRow selected;
  selected.status =
      Worse(ScanRow(row).status,
            AreValid(params, limits) && IsValid(key) ? RowStatus::kOk : RowStatus::kBadParam);
  if (selected.status != RowStatus::kOk) return selected;

  int64_t size = 0;
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    if (x != -Infinity()) workspace[size++] = {x, static_cast<int32_t>(i)};
  }
  SortByOrder(workspace, size);
  selected.sorted = {workspace, size};
  selected.kept = SelectInterval(selected.sorted, params, key, &selected.trace);
  return selected;
}

}  // namespace sluice::semantics
