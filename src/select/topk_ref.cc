// topk for scores by the definition. It has no use for a hint.
#include "select/topk_table.h"
#include "semantics/topk_scores.h"
#include "support/rows.h"

namespace sluice {
namespace {

size_t WorkspaceBytesRef(const TopkInput& input) {
  return static_cast<size_t>(input.scores.vocab) * sizeof(semantics::Token);
}

void TopkRef(const TopkInput& input, std::span<int32_t> indices, std::span<float> values,
             std::span<RowStatus> statuses, const Execution& execution) {
  ForEachRow(execution.parallel, input.scores.rows, [&](int64_t r, int worker) {
    const int64_t visible =
        input.lengths.empty()
            ? input.scores.vocab
            : semantics::VisibleLength(input.lengths[static_cast<size_t>(r / input.next_n)],
                                       input.next_n, static_cast<int32_t>(r % input.next_n));
    auto* workspace = reinterpret_cast<semantics::Token*>(
        WorkerWorkspace(execution, WorkspaceBytesRef(input), worker));
    statuses[static_cast<size_t>(r)] = semantics::TopkScores(
        {input.scores.Row(r), input.scores.dtype, visible}, input.k, input.sorted, workspace,
        indices.data() + r * input.k, values.empty() ? nullptr : values.data() + r * input.k);
  });
}

}  // namespace

const TopkTable kTopkRef = {WorkspaceBytesRef, TopkRef};

}  // namespace sluice
