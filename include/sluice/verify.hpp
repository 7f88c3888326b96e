// Draft tokens: how many of them the target model accepts, and the token that follows.
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

  // The probabilities that the drafts were drawn from, read by DraftMode::kReject: like ids, one
  // row a row of the target, and that of a bonus row is not read. At most one of the two:
  MatrixView probabilities = {};         // fp32, values in [0, 1]
  SelectInput model = {};                // a draft model's logits and parameters
  std::span<const Cut> model_cuts = {};  // and the Cuts that its drafts were drawn from
};

size_t VerifyWorkspaceBytes(const LogitsView& logits, const Execution& execution);

// results: one a row. The first emitted[r] rows of request r hold its tokens: the accepted drafts,
// then one recovered or bonus token; the later rows have id -1. A row with a status ends the
// request's tokens and is not counted in emitted.
void Verify(const SelectInput& target, const Drafts& drafts, DraftMode mode, DrawMethod method,
            std::span<TokenResult> results, std::span<int32_t> emitted, const Execution& execution);

}  // namespace sluice
