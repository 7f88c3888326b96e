// topk for scores by the definition.
#include <limits>

#include "semantics/topk_scores.h"
#include "topk/topk_table.h"

namespace sluice {
namespace {

size_t WorkspaceBytesRef(int64_t columns) {
  return static_cast<size_t>(columns) * sizeof(semantics::Token);
}

RowStatus TopkRowRef(const TopkRequest& request, std::byte* workspace) {
  if (request.threshold != nullptr) *request.threshold = std::numeric_limits<float>::quiet_NaN();
  return semantics::TopkScores(request.row, request.k, request.sorted,
                               reinterpret_cast<semantics::Token*>(workspace), request.indices,
                               request.values);
}

}  // namespace

const TopkTable kTopkRef = {WorkspaceBytesRef, TopkRowRef};

}  // namespace sluice
