// Selection: checks what the caller passed, then hands over to the backend.
#include "sluice/select.hpp"

#include "select/select_table.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {

const SelectTable& SelectTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kSelectAvx512;
    case Backend::kCpuAvx2:
      return kSelectAvx2;
#endif
    default:
      return kSelectRef;
  }
}

size_t SelectWorkspaceBytes(const LogitsView& logits, const Execution& execution) {
  CheckLogits("logits", logits);
  CheckWorkers(execution);
  return WorkspaceBytes(execution, SelectTableFor(execution.backend).workspace_bytes(logits.vocab));
}

void SelectWith(const SelectTable& table, const SelectInput& input, std::span<Cut> cuts,
                std::span<CutMass> masses, const Execution& execution) {
  const size_t bytes = table.workspace_bytes(input.logits.vocab);
  CheckSelectInput("", input, execution, WorkspaceBytes(execution, bytes));
  CheckSize("cuts", cuts.size(), input.logits.rows);
  if (!masses.empty()) CheckSize("masses", masses.size(), input.logits.rows);
  CheckAlgorithm(execution, input.logits.rows);
  if (input.keys.empty() && AnyXtc(input.params)) {
    ThrowInvalid("keys", "empty", "one NoiseKey for all rows or one a row when XTC is on");
  }

  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) {
    const NoiseKey key = input.keys.empty() ? NoiseKey{} : PerRow(input.keys, r);
    const SelectedSet selected =
        table.select_row({{input.logits.Row(r), input.logits.dtype, input.logits.vocab},
                          PerRow(input.params, r),
                          key,
                          input.limits,
                          !masses.empty(),
                          execution.algorithm},
                         WorkerWorkspace(execution, bytes, worker));
    cuts[static_cast<size_t>(r)] = selected.cut;
    if (!masses.empty()) masses[static_cast<size_t>(r)] = selected.mass;
    if (!execution.work.empty()) execution.work[static_cast<size_t>(r)] = selected.work;
  });
}

void Select(const SelectInput& input, std::span<Cut> cuts, std::span<CutMass> masses,
            const Execution& execution) {
  CheckLogits("logits", input.logits);
  CheckWorkers(execution);
  SelectWith(SelectTableFor(execution.backend), input, cuts, masses, execution);
}

void Mask(const MutableLogitsView& logits, std::span<const Cut> cuts, const Execution& execution) {
  CheckLogits("logits", logits);
  CheckSize("cuts", cuts.size(), logits.rows);
  CheckExecution(execution, 0);
  SelectTableFor(execution.backend).mask(logits, cuts, execution);
}

void KeptBitmask(const LogitsView& logits, std::span<const Cut> cuts, std::span<int32_t> bitmask,
                 const Execution& execution) {
  CheckLogits("logits", logits);
  CheckSize("cuts", cuts.size(), logits.rows);
  CheckSize("bitmask", bitmask.size(), logits.rows * ((logits.vocab + 31) / 32));
  CheckExecution(execution, 0);
  SelectTableFor(execution.backend).kept_bitmask(logits, cuts, bitmask, execution);
}

void Collect(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
             const Candidates& candidates, const Execution& execution) {
  CheckSelectInput("", input, execution, SelectWorkspaceBytes(input.logits, execution));
  CheckSize("cuts", cuts.size(), input.logits.rows);
  CheckInRange("order", static_cast<int64_t>(order), 0, 1);
  const std::span<const int64_t> offsets = candidates.offsets;
  CheckSize("candidates.offsets", offsets.size(), input.logits.rows + 1);
  CheckInRange("candidates.offsets[0]", offsets.front(), 0, 0);
  for (size_t row = 0; row < cuts.size(); ++row) {
    CheckInRange("cuts.count", cuts[row].count, 0, input.logits.vocab);
    const int64_t end = offsets[row] + cuts[row].count;
    if (offsets[row + 1] != end) {
      ThrowInvalid("candidates.offsets", ToText(offsets[row + 1]),
                   std::string("the running sum of the Cuts' counts, ").append(ToText(end)));
    }
  }
  const int64_t total = offsets.back();
  if (!candidates.ids.empty()) CheckSize("candidates.ids", candidates.ids.size(), total);
  if (!candidates.logits.empty()) CheckSize("candidates.logits", candidates.logits.size(), total);
  if (!candidates.weights.empty()) {
    CheckSize("candidates.weights", candidates.weights.size(), total);
  }
  SelectTableFor(execution.backend).collect(input, cuts, order, candidates, execution);
}

}  // namespace sluice
