// A head that finds the first tokens of a hidden state without computing every logit. The engine
// takes one of the caller's, such as the rows in clusters of sluice/research/cluster_head.hpp; the
// tokens that are drawn do not depend on it.
#pragma once

#include <cstdint>
#include <span>

#include "sluice/head.hpp"

namespace sluice {

struct TopKAnswer {
  bool holds = false;     // false: the dense head has to serve
  bool is_whole = false;  // every row of the output matrix was computed
  int64_t rows = 0;       // of the output matrix that were computed
  int64_t bytes = 0;      // read, of bounds and weights
};

class TopKHead {
 public:
  virtual ~TopKHead() = default;

  // Fills `ids` with the first tokens in the total order and `logits` with the dense head's logits
  // of them, bit for bit. hidden: one row. position: tokens that its request has drawn before. One
  // thread at a time.
  virtual TopKAnswer TopK(const MatrixView& hidden, int64_t position, std::span<int32_t> ids,
                          std::span<float> logits) = 0;
};

}  // namespace sluice
