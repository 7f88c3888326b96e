// Draft tokens: how many of them the target model agrees with, and the token that follows.
#pragma once

#include <cstdint>
#include <span>

#include "sluice/draw.hpp"

namespace sluice {

// A request with n drafts owns n + 1 consecutive rows of the target's logits: row j is what the
// target says after the first j drafts, the last row is the bonus row.
struct Drafts {
  std::span<const int64_t> first_row = {};  // requests + 1 elements; request r owns [r, r + 1)
  std::span<const int32_t> ids = {};        // one a row; that of a bonus row is not read

  // What the draft was drawn from, read by DraftMode::kReject. At most one of the two:
  MatrixView probabilities = {};          // fp32, one row a target row, values in [0, 1]
  SelectInput sluice = {};                // the draft model's logits and parameters, row by row
  std::span<const Cut> sluice_cuts = {};  // and the Cuts that its drafts were drawn from
};

size_t VerifyWorkspaceBytes(const LogitsView& logits, const Execution& execution);

// results: one a row. The first emitted[r] rows of request r hold its tokens: the accepted drafts,
// then one recovered or bonus token; the rows behind have id -1. A row with a status ends the
// request's tokens and is not counted in emitted.
void Verify(const SelectInput& target, const Drafts& drafts, DraftMode mode, DrawMethod method,
            std::span<TokenResult> results, std::span<int32_t> emitted, const Execution& execution);

}  // namespace sluice
