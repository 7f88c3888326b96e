// Stages 3 to 5 as one bitmask, for callers without the row: what AdjustRow makes -inf has no
// bit.
#pragma once

#include <algorithm>

#include "semantics/adjust/adjust.h"

namespace sluice::semantics {

// Whether they mask anything besides the bitmask of `in`.
inline bool MasksTokens(const AdjustInput& in) {
  const auto generated = static_cast<int64_t>(in.tokens.size() - in.prompt_length);
  return in.has_allowed_ids || in.bad_words.size() != 0 ||
         (MasksStops(in.min_tokens, generated) && !in.stop_ids.empty());
}

// words: ceil(vocab / 32), not those of `in`.
inline void MaskTokens(const AdjustInput& in, std::span<int32_t> words) {
  const auto allowed = [&](size_t w) { return in.bitmask == nullptr ? ~0 : in.bitmask[w]; };
  const auto bit = [](int32_t id) { return static_cast<int32_t>(1u << (id & 31)); };
  const auto mask = [&](int32_t id) { words[static_cast<size_t>(id >> 5)] &= ~bit(id); };
  if (in.has_allowed_ids) {
    std::fill(words.begin(), words.end(), 0);
    for (const int32_t id : in.allowed_ids) {
      const auto w = static_cast<size_t>(id >> 5);
      words[w] |= allowed(w) & bit(id);
    }
  } else {
    for (size_t w = 0; w < words.size(); ++w) words[w] = allowed(w);
  }
  const std::span<const int32_t> output = in.tokens.subspan(in.prompt_length);
  ForEachBadToken(in.bad_words, output, mask);
  if (MasksStops(in.min_tokens, static_cast<int64_t>(output.size()))) {
    for (const int32_t id : in.stop_ids) mask(id);
  }
}

}  // namespace sluice::semantics
