#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <limits>

#include "support/check.h"
#include "text/byte_kinds.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

// Writes bytes that are not UTF-8 as \xFF.
std::string Shown(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string shown;
  for (;;) {
    const size_t valid = ValidPrefix(bytes);
    shown.append(bytes.substr(0, valid));
    if (valid == bytes.size()) return ToText(std::string_view(shown));
    const auto byte = static_cast<uint8_t>(bytes[valid]);
    shown.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    bytes.remove_prefix(valid + 1);
  }
}

}  // namespace

Vocabulary::Vocabulary(size_t tokens)
    : largest_id_(std::min<int64_t>(
                      kMaxTokens,
                      int64_t{kSparseIds} + int64_t{kIdsPerToken} * static_cast<int64_t>(tokens)) -
                  1) {}

TokenEntry Vocabulary::Store(std::string_view bytes, uint8_t flags) {
  if (bytes.size() > kMaxTokenBytes) {
    ThrowInvalid("token.size()", ToText(static_cast<int64_t>(bytes.size())),
                 RangeText(0, int64_t{kMaxTokenBytes}));
  }
  if (arena_.size() + bytes.size() > std::numeric_limits<uint32_t>::max() - kArenaPadding) {
    ThrowInvalid("vocabulary.size()", "more than 4 GiB of text", "less");
  }
  const auto begin = static_cast<uint32_t>(arena_.size());
  arena_.append(bytes);
  return {.begin = begin, .size = static_cast<uint16_t>(bytes.size()), .flags = flags};
}

void Vocabulary::Add(std::string_view source, int64_t id, std::string_view token, uint8_t flags) {
  CheckInRange(std::string(source).append(".id"), id, 0, largest_id_);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) {
    if (index >= tokens_.capacity()) {
      tokens_.reserve(std::max(index + 1, std::min<size_t>(2 * tokens_.size(), kMaxTokens)));
    }
    tokens_.resize(index + 1);
  }
  TokenEntry& entry = tokens_[index];
  if (entry.flags & kKnownToken) {
    if (Bytes(entry) != token) {
      ThrowInvalid(std::string(source).append(".id"), ToText(id),
                   std::string("an id of one token, and it is ").append(Shown(Bytes(entry))));
    }
    entry.flags |= flags;
    return;
  }
  entry = Store(token, flags | kKnownToken);
}

void Vocabulary::BeginPieces(bool has_first_pieces) {
  pieces_.assign(tokens_.size(), {});
  first_pieces_.assign(has_first_pieces ? tokens_.size() : 0, {});
}

void Vocabulary::SetPiece(int32_t id, std::string_view bytes, uint8_t flags) {
  TokenEntry& piece = pieces_[static_cast<size_t>(id)];
  const TokenEntry& token = tokens_[static_cast<size_t>(id)];
  flags |= token.flags;
  if (IsUtf8(bytes)) flags |= kWholeToken;
  if (bytes == Bytes(token)) {
    piece = token;
    piece.flags = flags;
  } else {
    piece = Store(bytes, flags);
  }
  piece.kinds = KindsOf(bytes);
}

void Vocabulary::SetFirstPiece(int32_t id, std::string_view bytes) {
  const TokenEntry& piece = pieces_[static_cast<size_t>(id)];
  TokenEntry& first = first_pieces_[static_cast<size_t>(id)];
  if (bytes == Bytes(piece)) {
    first = piece;
    return;
  }
  first = Store(bytes, static_cast<uint8_t>((piece.flags & ~kWholeToken) |
                                            (IsUtf8(bytes) ? kWholeToken : 0)));
}

void Vocabulary::EndPieces() {
  arena_.append(kArenaPadding, '\0');
  arena_.shrink_to_fit();
}

}  // namespace sluice::text
