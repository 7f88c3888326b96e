// The step that almost all tokens take: a short one that is text as it is, in the middle of a text.
// It is inline, so that a stream of text takes it without a call.
#pragma once

#include "sluice/detokenizer.hpp"
#include "text/normalize/piece_filter.h"
#include "text/padded_append.h"

namespace sluice {

inline bool Detokenizer::IsPlain(int32_t id) const {
  return static_cast<uint32_t>(id) < plain_size_ && pieces_[id].flags == text::kPlainToken;
}

// The piece that AppendPlain can append for an id below `size`, which is no more than plain_size_;
// null: it takes more than that, or does not pass `filter`.
inline const text::TokenEntry* Detokenizer::PlainPiece(int32_t id, uint32_t size,
                                                       text::PieceFilter filter,
                                                       const std::string& text) const {
  if (static_cast<uint32_t>(id) >= size) return nullptr;
  const text::TokenEntry* const piece = pieces_ + id;
  return filter.Passes(*piece) && text::HasRoomForPadded(text) ? piece : nullptr;
}

inline void Detokenizer::AppendPlain(const text::TokenEntry& piece, std::string& text) const {
  text::AppendPadded(arena_ + piece.begin, piece.size, text);
}

}  // namespace sluice
