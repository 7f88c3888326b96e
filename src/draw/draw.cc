// Draws and log-probabilities: checks what the caller passed, then hands over to the backend.
#include "sluice/draw.hpp"

#include "draw/draw_table.h"
#include "semantics/cut.h"
#include "semantics/draw/noise.h"
#include "semantics/row_status.h"
#include "semantics/temperature.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {

const DrawTable& DrawTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kDrawAvx512;
    case Backend::kCpuAvx2:
      return kDrawAvx2;
#endif
    default:
      return kDrawRef;
  }
}

void Draw(const SelectInput& input, DrawMethod method, std::span<const Cut> cuts,
          std::span<TokenResult> results, const Execution& execution) {
  CheckSelectInput("", input, execution, SelectWorkspaceBytes(input.logits, execution));
  CheckPerRow("keys", input.keys.size(), input.logits.rows);
  CheckMethod(method);
  CheckSize("cuts", cuts.size(), input.logits.rows);
  CheckSize("results", results.size(), input.logits.rows);
  const DrawTable& table = DrawTableFor(execution.backend);
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int) {
    const SelectParams& params = PerRow(input.params, r);
    const NoiseKey& key = PerRow(input.keys, r);
    const semantics::Row row{input.logits.Row(r), input.logits.dtype, input.logits.vocab};
    Cut cut = cuts[static_cast<size_t>(r)];
    const semantics::StatusAndMax scan = table.examine(row);
    const bool is_valid = semantics::AreValid(params, input.limits) && semantics::IsValid(key);
    cut.status = semantics::Worse(
        cut.status,
        semantics::Worse(scan.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam));
    TokenResult& result = results[static_cast<size_t>(r)];
    result = TokenResult{};
    if (cut.status == RowStatus::kOk) {
      result.id =
          semantics::IsGreedy(params)
              ? table.first_kept(row, cut)
              : table.draw(row, cut, scan.max, semantics::ScalesOf(params).draw, method, key);
      if (result.id < 0) cut.status = RowStatus::kEmptySupport;  // a Cut that keeps nothing of it
    }
    result.status = cut.status;
    result.cut = cut.status == RowStatus::kOk ? cut : semantics::CutOfStatus(cut.status);
  });
}

void Logprobs(const LogprobInput& input, std::span<TokenResult> results, const LogprobLists& lists,
              const Execution& execution) {
  CheckSelectInput("", {input.logits, input.params}, execution,
                   SelectWorkspaceBytes(input.logits, execution));
  CheckSize("results", results.size(), input.logits.rows);
  CheckInRange("mode", static_cast<int64_t>(input.mode), 0, 3);
  CheckInRange("lists.width", lists.width, 0, input.logits.vocab + 1);
  CheckSize("lists.ids", lists.ids.size(), input.logits.rows * lists.width);
  CheckSize("lists.values", lists.values.size(), input.logits.rows * lists.width);
  for (const TokenResult& result : results) {
    if (result.status == RowStatus::kOk && result.id != -1) {
      CheckInRange("results.id", result.id, 0, input.logits.vocab - 1);
    }
  }
  DrawTableFor(execution.backend).logprobs(input, results, lists, execution);
}

}  // namespace sluice
