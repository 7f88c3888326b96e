// Heads and hidden states for the benches: made up, equal on every machine, shaped like a large
// language model's where it matters for a certificate: rows with a common mean and uneven norms,
// ||w|| ||h|| = 120 and a cosine of 0.2 between a hidden state and its most likely row, so logits
// with a standard deviation of 3 to 5 and a first one 20 or so above their mean. Rows are otherwise
// independent, or a share of their variance is a tree's: leaves of 32 rows, 16 of them to a branch,
// 16 branches to a bough, a third of the share each.
#pragma once

#include <cstdint>
#include <vector>

#include "sluice/tensor.hpp"

namespace sluice::bench {

struct HeadShape {
  int64_t vocab;
  int64_t dim;
};

class MadeHead {
 public:
  MadeHead(int64_t vocab, int64_t dim, int64_t states, double tree_share = 0.0);

  int64_t states() const { return states_; }

  MatrixView weight() const { return {weight_.data(), vocab_, dim_, dim_, DType::kBf16, {}}; }
  // Consecutive ones of the hidden states, from the start again after the last.
  MatrixView hidden(int64_t first, int64_t rows) const;

 private:
  int64_t vocab_;
  int64_t dim_;
  int64_t states_;
  std::vector<uint16_t> weight_;
  std::vector<uint16_t> hidden_;
};

}  // namespace sluice::bench
