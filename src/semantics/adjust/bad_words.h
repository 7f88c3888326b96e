// Stage 4: a word of n tokens is blocked by masking its last token whenever the last n - 1 output
// tokens equal its first n - 1. The prompt is never matched.
#pragma once

#include <span>

#include "semantics/host_device.h"

namespace sluice::semantics {

// Words one after the other: word w is ids[offsets[w], offsets[w + 1]), at least one token each.
struct BadWords {
  std::span<const int32_t> ids;
  std::span<const int32_t> offsets;

  SLUICE_HD size_t size() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  SLUICE_HD std::span<const int32_t> operator[](size_t word) const {
    const size_t begin = static_cast<size_t>(offsets[word]);
    return ids.subspan(begin, static_cast<size_t>(offsets[word + 1]) - begin);
  }
};

// output: tokens that may lie in more than one place.
template <typename Tokens>
SLUICE_HD inline bool EndsWith(const Tokens& output, std::span<const int32_t> prefix) {
  if (prefix.size() > output.size()) return false;
  const size_t first = output.size() - prefix.size();
  for (size_t i = 0; i < prefix.size(); ++i) {
    if (output[first + i] != prefix[i]) return false;
  }
  return true;
}

// Calls mask(id) for the tokens that are blocked after this output.
template <typename Mask>
SLUICE_HD inline void ForEachBadToken(const BadWords& words, std::span<const int32_t> output,
                                      const Mask& mask) {
  for (size_t w = 0; w < words.size(); ++w) {
    const auto word = words[w];
    if (EndsWith(output, word.first(word.size() - 1))) mask(word.back());
  }
}

SLUICE_HD inline void ApplyBadWords(std::span<float> x, const BadWords& words,
                                    std::span<const int32_t> output) {
  ForEachBadToken(words, output, [&](int32_t id) { x[static_cast<size_t>(id)] = -Infinity(); });
}

}  // namespace sluice::semantics
