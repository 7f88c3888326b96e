// What a backend provides for the dense head. Arguments have been checked.
#pragma once

#include "semantics/widen.h"
#include "sluice/head.hpp"

namespace sluice {

// The position that row `row` of the logits is projected from.
inline int64_t ProjectedPosition(std::span<const int32_t> query_start_loc, int64_t row) {
  return query_start_loc.empty() ? row : query_start_loc[static_cast<size_t>(row) + 1] - 1;
}

struct DenseHeadTable {
  void (*project)(const DenseHead&, const MatrixView& hidden,
                  std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
                  const Execution&);
  // The same logits of one hidden state for some tokens only; logits: one a token.
  void (*project_some)(const DenseHead&, const semantics::Row& hidden,
                       std::span<const int32_t> tokens, float* logits);
};

extern const DenseHeadTable kDenseHeadRef;
extern const DenseHeadTable kDenseHeadAvx2;
extern const DenseHeadTable kDenseHeadAvx512;

const DenseHeadTable& DenseHeadTableFor(Backend backend);

}  // namespace sluice
