// Draws and log-probabilities: checks what the caller passed, then hands over to the backend.
#include "sluice/draw.hpp"

#include "backend/registry.h"
#include "draw/draw_table.h"
#include "semantics/row_status.h"
#include "semantics/temperature.h"
#include "support/check.h"
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
  CheckSelectInput("", input, execution);
  CheckPerRow("keys", input.keys.size(), input.logits.rows);
  CheckSize("cuts", cuts.size(), input.logits.rows);
  CheckSize("results", results.size(), input.logits.rows);
  const DrawTable& table = DrawTableFor(execution.backend);
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int) {
    const Cut& cut = cuts[static_cast<size_t>(r)];
    TokenResult& result = results[static_cast<size_t>(r)];
    result = TokenResult{};
    result.status = cut.status;
    result.cut = cut;
    if (cut.status != RowStatus::kOk) return;
    const semantics::Row row{input.logits.Row(r), input.logits.dtype, input.logits.vocab};
    result.id = table.draw(row, cut, semantics::ScanRow(row).max,
                           semantics::ScalesOf(PerRow(input.params, r)).draw, method,
                           PerRow(input.keys, r));
  });
}

void Logprobs(const LogprobInput& input, std::span<TokenResult> results, const LogprobLists& lists,
              const Execution& execution) {
  CheckSelectInput("", {input.logits, input.params}, execution);
  CheckSize("results", results.size(), input.logits.rows);
  CheckInRange("lists.width", lists.width, 0, input.logits.vocab + 1);
  CheckSize("lists.ids", lists.ids.size(), input.logits.rows * lists.width);
  CheckSize("lists.values", lists.values.size(), input.logits.rows * lists.width);
  for (const TokenResult& result : results) {
    if (result.status == RowStatus::kOk) {
      CheckInRange("results.id", result.id, 0, input.logits.vocab - 1);
    }
  }
  DrawTableFor(execution.backend).logprobs(input, results, lists, execution);
}

}  // namespace sluice
