// The dense head: checks, the gather of last positions, then the backend.
#include "head/dense_table.h"
#include "support/check.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;

}  // namespace

const DenseHeadTable& DenseHeadTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kDenseHeadAvx512;
    case Backend::kCpuAvx2:
      return kDenseHeadAvx2;
#endif
    default:
      return kDenseHeadRef;
  }
}

size_t ProjectWorkspaceBytes(const DenseHead&, const MatrixView&, const Execution& execution) {
  CheckWorkers(execution);
  return 0;
}

void Project(const DenseHead& head, const MatrixView& hidden,
             std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
             const Execution& execution) {
  CheckMatrix("head.weight", "dim", head.weight, kMaxDim);
  CheckInRange("head.weight.rows", head.weight.rows, 1, kMaxVocab);
  if (!head.bias.empty()) CheckSize("head.bias", head.bias.size(), head.weight.rows);
  CheckMatrix("hidden", "dim", hidden, kMaxDim);
  CheckInRange("hidden.dim", hidden.columns, head.weight.columns, head.weight.columns);
  CheckLogits("logits", logits);
  CheckDType("logits", logits.dtype, DType::kF32);
  CheckInRange("logits.vocab", logits.vocab, head.weight.rows, head.weight.rows);
  CheckExecution(execution, ProjectWorkspaceBytes(head, hidden, execution));

  const bool gathers = !query_start_loc.empty();
  const int64_t requests = gathers ? static_cast<int64_t>(query_start_loc.size()) - 1 : hidden.rows;
  CheckInRange("logits.rows", logits.rows, requests, requests);
  for (int64_t r = 0; gathers && r < requests; ++r) {
    const int64_t begin = query_start_loc[static_cast<size_t>(r)];
    CheckInRange("query_start_loc", begin, 0, hidden.rows - 1);
    CheckInRange("query_start_loc", query_start_loc[static_cast<size_t>(r) + 1], begin + 1,
                 hidden.rows);
  }
  DenseHeadTableFor(execution.backend).project(head, hidden, query_start_loc, logits, execution);
}

}  // namespace sluice
