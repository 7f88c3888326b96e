// The dense head by the definition: one dot product a token.
#include "head/dense_table.h"
#include "semantics/dot.h"
#include "support/rows.h"

namespace sluice {
namespace {

float Logit(const DenseHead& head, const semantics::Row& state, int64_t v) {
  const float dot =
      semantics::Dot({head.weight.Row(v), head.weight.dtype, head.weight.columns}, state);
  return head.bias.empty() ? dot : dot + head.bias[static_cast<size_t>(v)];
}

void ProjectRef(const DenseHead& head, const MatrixView& hidden,
                std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
                const Execution& execution) {
  ForEachRow(execution.parallel, logits.rows, [&](int64_t r, int) {
    const int64_t position = ProjectedPosition(query_start_loc, r);
    const semantics::Row state{hidden.Row(position), hidden.dtype, hidden.columns};
    float* out = static_cast<float*>(logits.Row(r));
    for (int64_t v = 0; v < head.weight.rows; ++v) out[v] = Logit(head, state, v);
  });
}

void ProjectSomeRef(const DenseHead& head, const semantics::Row& hidden,
                    std::span<const int32_t> tokens, float* logits) {
  for (size_t i = 0; i < tokens.size(); ++i) logits[i] = Logit(head, hidden, tokens[i]);
}

}  // namespace

const DenseHeadTable kDenseHeadRef = {ProjectRef, ProjectSomeRef};

}  // namespace sluice
