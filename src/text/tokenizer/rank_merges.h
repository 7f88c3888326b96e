// Merges of a vocabulary that has a rank for each token instead: two tokens merge when what they
// make is one, of the lowest rank first.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/normalize/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_map.h"

namespace sluice::text {

// No token longer than this is made by merging: its splits are as many as its bytes.
inline constexpr size_t kLongestMerged = 512;

// tokens: in the order of rank. With is_text, tokens are cut between characters only.
inline std::vector<BpeMerge> MergesOf(
    const std::vector<std::pair<std::string_view, int32_t>>& tokens, const TokenMap& ids,
    bool is_text) {
  std::vector<BpeMerge> merges;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const auto [token, id] = tokens[rank];
    if (token.size() > kLongestMerged) continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (is_text && IsContinuation(static_cast<uint8_t>(token[cut]))) continue;
      const int32_t left = ids.Find(token.substr(0, cut));
      const int32_t right = left < 0 ? -1 : ids.Find(token.substr(cut));
      if (right >= 0) merges.push_back({left, right, id, static_cast<uint32_t>(rank)});
    }
  }
  return merges;
}

}  // namespace sluice::text
