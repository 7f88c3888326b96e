// The decoding of a token's spelling: a list of steps, compiled into a piece of bytes for each
// token and a few rules for the ends of a text.
//
//   step           a token                                      the text as a whole
//   ByteLevel      bytes, if every character is in the alphabet
//   ByteFallback   <0xHH> is a byte
//   Replace        pattern -> content                           refused
//   Metaspace      U+2581 -> space; nothing in the first token
//   WordPiece      ## off, else a space in front
//   BPEDecoder     suffix -> space; nothing in the last token
//   Strip          characters off both ends                     the same
//   Fuse           from here on steps see the text as a whole
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/regex/regex.h"
#include "text/tokenizer/vocabulary.h"

namespace sluice::text {

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,
    kByteFallback,
    kFuse,
    kStrip,
    kReplace,
    kMetaspace,
    kWordPiece,
    kBpe,
    kJoin,  // of a file without a decoder: tokens with a space between them
  };
  Kind kind;
  std::string pattern = {};  // or prefix, suffix, the character that is stripped or a space
  std::string content = {};
  std::shared_ptr<const Regex> regex = {};  // instead of pattern
  int32_t start = 0;
  int32_t stop = 0;
  bool is_on = false;  // WordPiece: cleanup; Metaspace: the first token has no space in front
};
using DecoderSteps = std::vector<DecoderStep>;

// The bytes that follow a token's piece: it depends on whether another token comes.
struct Tail {
  std::string followed = " ";
  std::string last = "";

  bool operator==(const Tail&) const = default;
};

// The rules that are left for the ends of a text.
struct DecodeRules {
  std::string stripped;        // one character; empty: none
  uint8_t leading = 0;         // how many of it are dropped from the beginning
  uint8_t trailing = 0;        // and from the end
  bool has_byte_runs = false;  // some tokens are single bytes
  // The tails of tokens with kWordEnd. The first is the usual one; the others belong to few tokens.
  std::vector<Tail> tails = {Tail()};
  std::unordered_map<int64_t, uint32_t> unusual_tails = {};  // by TailKey: places in `tails`

  // A first piece may have another tail.
  static int64_t TailKey(int32_t id, bool is_first) { return int64_t{id} * 2 + (is_first ? 1 : 0); }
  uint32_t TailOf(int32_t id, bool is_first) const {
    const auto found = unusual_tails.find(TailKey(id, is_first));
    return found == unusual_tails.end() ? 0 : found->second;
  }
};

// Tokens that are decoded as if they were spelled otherwise.
using Spellings = std::unordered_map<int32_t, std::string>;

// Makes the pieces of every token; the text of one in `surfaces` is that, whatever the steps are.
// Throws Error for what no token-by-token decoding can do.
DecodeRules CompileDecoder(const DecoderSteps& steps, const Spellings& spellings,
                           const Spellings& surfaces, Vocabulary& vocabulary);

// The decoders that can replace the file's.
DecoderSteps ByteLevelDecoder();
// dropped_spaces: the most that are dropped, from the beginning of a text.
DecoderSteps SentencePieceDecoder(int32_t dropped_spaces);

}  // namespace sluice::text
