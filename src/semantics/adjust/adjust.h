// Stages 3 to 8 for one row, in their order; the forced token (9) is forced.h. The values are
// adjusted in place in fp32.
//
//   3 grammar bitmask, allowed ids    4 bad words    5 min-tokens    6 bias
//   7 repetition, frequency, presence    8 DRY, then user processors    9 forced token
#pragma once

#include "semantics/adjust/bad_words.h"
#include "semantics/adjust/bias.h"
#include "semantics/adjust/dry.h"
#include "semantics/adjust/forced.h"
#include "semantics/adjust/mask.h"
#include "semantics/adjust/penalties.h"

namespace sluice::semantics {

// Everything that the adjustments of one row look at. Views: the request state owns the memory.
struct AdjustInput {
  const int32_t* bitmask = nullptr;  // ceil(vocab / 32) words; null allows everything
  bool has_allowed_ids = false;
  std::span<const int32_t> allowed_ids = {};
  BadWords bad_words = {};
  std::span<const int32_t> stop_ids = {};
  int32_t min_tokens = 0;
  std::span<const BiasEntry> bias = {};
  Penalties penalties = {};
  PenaltyScope penalty_scope = PenaltyScope::kOutput;
  Dry dry = {};

  std::span<const int32_t> tokens = {};  // prompt and output
  size_t prompt_length = 0;
  std::span<TokenCount> counts = {};       // of `tokens`
  std::span<uint32_t> dry_workspace = {};  // as many elements as tokens, when DRY is on
};

// Stages 3 to 8 but for the user's processors, which run after it.
SLUICE_HD inline void AdjustRow(std::span<float> x, const AdjustInput& in) {
  const std::span<const int32_t> output = in.tokens.subspan(in.prompt_length);
  if (in.bitmask != nullptr) ApplyBitmask(x, in.bitmask);
  if (in.has_allowed_ids) ApplyAllowedIds(x, in.allowed_ids);
  ApplyBadWords(x, in.bad_words, output);
  ApplyMinTokens(x, in.stop_ids, in.min_tokens, static_cast<int64_t>(output.size()));
  ApplyBias(x, in.bias);
  ApplyPenalties(x, in.penalties, in.counts, in.penalty_scope);
  ApplyDry(x, in.dry, in.tokens, in.counts, in.dry_workspace);
}

}  // namespace sluice::semantics
