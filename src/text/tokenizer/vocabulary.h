// The tokens of a vocabulary, as they are spelled and as they are decoded: all bytes in one arena.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

enum TokenFlags : uint8_t {
  kKnownToken = 1,      // the id has a token
  kAddedToken = 2,      // not of the model itself
  kSpecialToken = 4,    // skipped when special tokens are
  kByteToken = 8,       // one byte, by its name <0xHH>
  kWholeToken = 16,     // decodes to UTF-8 on its own
  kVerbatimToken = 64,  // nothing is dropped from its text where it begins one
  kWordEnd = 32,        // has a Tail: usually a space follows unless the text ends
};

// The token's bytes are its text, whatever came before.
inline constexpr uint8_t kPlainToken = kKnownToken | kWholeToken;

// One cache line holds eight of these: what a step of a detokeniser looks up.
struct TokenEntry {
  uint32_t begin = 0;
  uint16_t size = 0;
  uint8_t flags = 0;
  uint8_t kinds = 0;  // of a piece: the kinds of bytes that it has, see byte_kinds.h
};

inline constexpr int32_t kMaxTokens = 1 << 22;
// Ids are places in tables. Up to here they may be as sparse as they like; beyond, a file has a
// token for every sixteen of them, so that a small one cannot cause a large table.
inline constexpr int32_t kSparseIds = 1 << 17;
inline constexpr int32_t kIdsPerToken = 16;
inline constexpr size_t kMaxTokenBytes = 65535;
// Bytes that may be read after the arena's last one, so that a short token is copied at once.
inline constexpr size_t kArenaPadding = 16;

class Vocabulary {
 public:
  // tokens: how many the file has, at the most.
  explicit Vocabulary(size_t tokens);

  // Throws Error when the id is out of range or has another token. `source` names the list in the
  // file that the token comes from.
  void Add(std::string_view source, int64_t id, std::string_view token, uint8_t flags);

  // For a token of the model that is an added one as well.
  void AddFlags(int32_t id, uint8_t flags) { tokens_[static_cast<size_t>(id)].flags |= flags; }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool IsKnown(int32_t id) const {
    return static_cast<uint32_t>(id) < tokens_.size() && Flags(id) & kKnownToken;
  }
  uint8_t Flags(int32_t id) const { return tokens_[static_cast<size_t>(id)].flags; }
  std::string_view Token(int32_t id) const { return Bytes(tokens_[static_cast<size_t>(id)]); }

  // The decoded form of a token: at the beginning of a text, and anywhere else. Set for every
  // known id, in any order, before the vocabulary is used.
  void BeginPieces(bool has_first_pieces);
  void SetPiece(int32_t id, std::string_view bytes, uint8_t flags);
  void SetFirstPiece(int32_t id, std::string_view bytes);
  void EndPieces();

  bool HasFirstPieces() const { return !first_pieces_.empty(); }
  const TokenEntry* pieces() const { return pieces_.data(); }
  const char* arena() const { return arena_.data(); }
  const TokenEntry& Piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  const TokenEntry& FirstPiece(int32_t id) const {
    return (HasFirstPieces() ? first_pieces_ : pieces_)[static_cast<size_t>(id)];
  }
  std::string_view Bytes(const TokenEntry& entry) const {
    return {arena_.data() + entry.begin, entry.size};
  }

 private:
  TokenEntry Store(std::string_view bytes, uint8_t flags);

  int64_t largest_id_;
  std::string arena_;
  std::vector<TokenEntry> tokens_;
  std::vector<TokenEntry> pieces_;
  std::vector<TokenEntry> first_pieces_;  // empty: as pieces_
};

}  // namespace sluice::text
