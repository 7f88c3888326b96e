#include "text/word_piece.h"

#include <algorithm>
#include <utility>

#include "support/check.h"
#include "text/utf8.h"

namespace sluice::text {

WordPiece::WordPiece(WordPieceOptions options, TokenMap tokens, size_t longest_token)
    : options_(std::move(options)), tokens_(std::move(tokens)), longest_token_(longest_token) {}

void WordPiece::Encode(std::string_view piece, ModelScratch& scratch,
                       std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const auto give_up = [&] {
    ids.resize(before);
    if (options_.unknown_id < 0) {
      ThrowInvalid("model.unk_token", "none", "a token, for a word that has no other");
    }
    ids.push_back(options_.unknown_id);
  };
  const auto is_first_byte = [](char c) { return !IsContinuation(static_cast<uint8_t>(c)); };
  if (std::count_if(piece.begin(), piece.end(), is_first_byte) > options_.max_characters) {
    return give_up();
  }
  while (!piece.empty()) {
    scratch.text.assign(ids.size() > before ? options_.prefix : "");
    const size_t prefix = scratch.text.size();
    const size_t most = longest_token_ > prefix ? longest_token_ - prefix : 0;
    size_t size = std::min(piece.size(), most);
    while (size > 0 && size < piece.size() && !is_first_byte(piece[size])) --size;
    scratch.text.append(piece, 0, size);
    int32_t id = -1;
    while (size > 0 && (id = tokens_.Find(scratch.text)) < 0) {
      size -= LastOf(piece.substr(0, size)).size;
      scratch.text.resize(prefix + size);
    }
    if (id < 0) return give_up();
    ids.push_back(id);
    piece.remove_prefix(size);
  }
}

}  // namespace sluice::text
