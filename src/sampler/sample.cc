// Select and Draw in one: the draw starts from the tokens that selection still has at hand.
#include "draw/draw_table.h"
#include "sampler/sample_row.h"
#include "select/select_table.h"
#include "semantics/temperature.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {

SelectedSet SampleRow(const RowRequest& request, DrawMethod method, const SelectTable& selection,
                      const DrawTable& draws, std::byte* workspace, TokenResult& result) {
  RowRequest wanted = request;
  wanted.needs_tokens = method == DrawMethod::kGumbel;
  const SelectedSet set = selection.select_row(wanted, workspace);
  result = TokenResult{};
  result.cut = set.cut;
  result.status = set.cut.status;
  if (result.status != RowStatus::kOk) return set;
  const NoiseKey& key = request.key;
  const float scale = semantics::ScalesOf(request.params).draw;
  if (set.first_id >= 0) {
    result.id = set.first_id;
  } else if (set.kept.x != nullptr && method == DrawMethod::kGumbel) {
    result.id = draws.draw_listed({set.kept.x, set.kept.ids, set.kept.size}, set.max, scale, key);
  } else {
    result.id = draws.draw(request.row, set.cut, set.max, scale, method, key);
  }
  return set;
}

void SampleWith(const SelectTable& selection, const SelectInput& input, DrawMethod method,
                std::span<TokenResult> results, const Execution& execution) {
  const size_t bytes = selection.workspace_bytes(input.logits.vocab);
  CheckSelectInput("", input, execution, WorkspaceBytes(execution, bytes));
  CheckPerRow("keys", input.keys.size(), input.logits.rows);
  CheckMethod(method);
  CheckSize("results", results.size(), input.logits.rows);
  CheckAlgorithm(execution, input.logits.rows);
  const DrawTable& draws = DrawTableFor(execution.backend);
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) {
    const semantics::Row row{input.logits.Row(r), input.logits.dtype, input.logits.vocab};
    const SelectedSet selected =
        SampleRow({row, PerRow(input.params, r), PerRow(input.keys, r), input.limits, false,
                   execution.algorithm},
                  method, selection, draws, WorkerWorkspace(execution, bytes, worker),
                  results[static_cast<size_t>(r)]);
    if (!execution.work.empty()) execution.work[static_cast<size_t>(r)] = selected.work;
  });
}

void Sample(const SelectInput& input, DrawMethod method, std::span<TokenResult> results,
            const Execution& execution) {
  CheckLogits("logits", input.logits);
  CheckWorkers(execution);
  SampleWith(SelectTableFor(execution.backend), input, method, results, execution);
}

}  // namespace sluice
