// From hidden states to logits: the vocabulary projection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

// logit[v] = <weight[v], hidden> + bias[v] in a fixed order (docs/semantics.md, Heads): the same
// bits on every backend, for any batch and any subset of rows.
struct DenseHead {
  MatrixView weight = {};            // [vocab, dim]
  std::span<const float> bias = {};  // empty, or one a token
};

// hidden: [positions, dim], any dtype. query_start_loc: empty, then every position is projected;
// or requests + 1 ascending offsets into the positions, then only the last position of each
// request is, which saves the projection of a prompt's other positions. logits: fp32.
size_t ProjectWorkspaceBytes(const DenseHead& head, const MatrixView& hidden,
                             const Execution& execution);

void Project(const DenseHead& head, const MatrixView& hidden,
             std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
             const Execution& execution);

}  // namespace sluice
