#include "text/tokenizer/word_piece.h"

#include <algorithm>

#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::text {

WordPiece::WordPiece(WordPieceOptions options,
                     const std::vector<std::pair<std::string_view, int32_t>>& tokens)
    : options_(std::move(options)) {
  std::vector<LongestMatcher::Pattern> beginning;
  std::vector<LongestMatcher::Pattern> continuing;
  const auto add = [&](std::vector<LongestMatcher::Pattern>& to, std::string_view text,
                       int32_t id) {
    to.push_back({text, static_cast<int32_t>(tokens_.size())});
    tokens_.push_back({id, static_cast<uint32_t>(text.size())});
  };
  for (const auto& [token, id] : tokens) {
    add(beginning, token, id);
    if (token.starts_with(options_.prefix)) {
      add(continuing, token.substr(options_.prefix.size()), id);
    }
  }
  beginning_ = LongestMatcher("model.vocab", std::move(beginning));
  continuing_ = LongestMatcher("model.vocab", std::move(continuing));
}

void WordPiece::Encode(std::string_view piece, ModelScratch& scratch,
                       std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const auto give_up = [&] {
    ids.resize(before);
    if (options_.unknown_id < 0) {
      ThrowInvalid("model.unk_token", "", "a token, for a word that has no other");
    }
    ids.push_back(options_.unknown_id);
  };
  const auto is_first_byte = [](char c) { return !IsContinuation(static_cast<uint8_t>(c)); };
  if (std::count_if(piece.begin(), piece.end(), is_first_byte) > options_.max_characters) {
    return give_up();
  }
  std::vector<int32_t>& longest = scratch.longest;
  longest.assign(piece.size(), -1);
  continuing_.ForEachFromTheEnd(piece, [&](size_t at, int32_t token) { longest[at] = token; });
  longest[0] = -1;
  beginning_.ForEachFromTheEnd(piece, [&](size_t at, int32_t token) {
    if (at == 0) longest[0] = token;
  });
  for (size_t at = 0; at < piece.size();) {
    if (longest[at] < 0) return give_up();
    const Token& token = tokens_[static_cast<size_t>(longest[at])];
    ids.push_back(token.id);
    at += token.size;
  }
}

}  // namespace sluice::text
