// The step that almost all tokens take: a short one that is text as it is, in the middle of a text.
// It is inline, so that a stream of text takes it without a call.
#pragma once

#include "sluice/detokenizer.hpp"
#include "text/padded_append.h"
#include "text/vocabulary.h"

namespace sluice {

// Nothing is held back, and the token's bytes are its text.
inline bool Detokenizer::IsPlain(int32_t id) const {
  constexpr uint8_t kPlain = text::kKnownToken | text::kWholeToken;
  return is_plain_ && static_cast<uint32_t>(id) < pieces_size_ && pieces_[id].flags == kPlain;
}

// The piece that AppendPlain can append; null: it takes more than that.
inline const text::TokenEntry* Detokenizer::PlainPiece(int32_t id, const std::string& text) const {
  if (!IsPlain(id)) return nullptr;
  const text::TokenEntry* const piece = pieces_ + id;
  return text::CanAppendPadded(piece->size, text) ? piece : nullptr;
}

inline void Detokenizer::AppendPlain(const text::TokenEntry& piece, std::string& text) const {
  text::AppendPadded(arena_ + piece.begin, piece.size, text);
}

}  // namespace sluice
