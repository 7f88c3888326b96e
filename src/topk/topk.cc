// topk for scores: checks what the caller passed, then hands over to the backend.
#include "sluice/topk.hpp"

#include "semantics/topk_scores.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"
#include "topk/topk_table.h"

namespace sluice {
namespace {

const TopkTable& TableFor(const Execution& execution) {
  switch (ResolveBackend(execution.backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kTopkAvx512;
    case Backend::kCpuAvx2:
      return kTopkAvx2;
#endif
    default:
      return kTopkRef;
  }
}

int64_t Visible(const TopkInput& input, int64_t row) {
  if (input.lengths.empty()) return input.scores.vocab;
  return semantics::VisibleLength(input.lengths[static_cast<size_t>(row / input.next_n)],
                                  input.next_n, static_cast<int32_t>(row % input.next_n));
}

}  // namespace

size_t TopkWorkspaceBytes(const TopkInput& input, const Execution& execution) {
  CheckLogits("scores", input.scores);
  CheckWorkers(execution);
  return WorkspaceBytes(execution, TableFor(execution).workspace_bytes(input.scores.vocab));
}

void Topk(const TopkInput& input, std::span<int32_t> indices, std::span<float> values,
          std::span<RowStatus> statuses, const Execution& execution) {
  CheckExecution(execution, TopkWorkspaceBytes(input, execution));
  const int64_t rows = input.scores.rows;
  CheckInRange("k", input.k, 1, kMaxVocab);
  CheckInRange("next_n", input.next_n, 1, 1 << 16);
  if (rows % input.next_n != 0) {
    ThrowInvalid("scores.rows", ToText(rows),
                 "a multiple of next_n, " + ToText(int64_t{input.next_n}));
  }
  const int64_t requests = rows / input.next_n;
  if (!input.lengths.empty()) CheckSize("lengths", input.lengths.size(), requests);
  for (const int32_t length : input.lengths) {
    CheckInRange("lengths", length, 0, input.scores.vocab);
  }
  CheckInRange("hint_columns", input.hint_columns, 0, kMaxVocab);
  CheckSize("hint", input.hint.size(), requests * input.hint_columns);
  CheckSize("indices", indices.size(), rows * input.k);
  if (!values.empty()) CheckSize("values", values.size(), rows * input.k);
  CheckSize("statuses", statuses.size(), rows);

  if (!input.thresholds.empty()) CheckSize("thresholds", input.thresholds.size(), rows);

  // A hint is of no use here: to gather the hinted scores takes longer than to sample the row. What
  // a threshold leaves is counted, so the sample is what it saves.
  const TopkTable& table = TableFor(execution);
  const size_t bytes = table.workspace_bytes(input.scores.vocab);
  ForEachRow(execution.parallel, rows, [&](int64_t r, int worker) {
    statuses[static_cast<size_t>(r)] =
        table.topk_row({{input.scores.Row(r), input.scores.dtype, Visible(input, r)},
                        input.k,
                        input.sorted,
                        indices.data() + r * input.k,
                        values.empty() ? nullptr : values.data() + r * input.k,
                        input.thresholds.empty() ? nullptr : input.thresholds.data() + r},
                       WorkerWorkspace(execution, bytes, worker));
  });
}

}  // namespace sluice
