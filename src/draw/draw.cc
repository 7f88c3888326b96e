// Draws and log-probabilities: checks what the caller passed, then hands over to the backend.
#include "sluice/draw.hpp"

#include "backend/registry.h"
#include "draw/draw_table.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {

const DrawTable& DrawTableFor(const Execution& execution) {
  ResolveBackend(execution.backend);  // throws when it is not there
  return kDrawRef;         // which serves them all
}

void Draw(const SelectInput& input, DrawMethod method, std::span<const Cut> cuts,
          std::span<TokenResult> results, const Execution& execution) {
  CheckSelectInput("", input, execution);
  CheckPerRow("keys", input.keys.size(), input.logits.rows);
  CheckSize("cuts", cuts.size(), input.logits.rows);
  CheckSize("results", results.size(), input.logits.rows);
  DrawTableFor(execution).draw(input, method, cuts, results, execution);
}

void Sample(const SelectInput& input, DrawMethod method, std::span<TokenResult> results,
            const Execution& execution) {
  CheckSelectInput("", input, execution);
  CheckPerRow("keys", input.keys.size(), input.logits.rows);
  CheckSize("results", results.size(), input.logits.rows);
  DrawTableFor(execution).sample(input, method, results, execution);
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
  DrawTableFor(execution).logprobs(input, results, lists, execution);
}

}  // namespace sluice
