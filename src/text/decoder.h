// What becomes of a token's spelling: a list of steps, compiled into a piece of bytes for each
// token and a few rules for the ends of a text.
//
//   step           a token                                      the text as a whole
//   ByteLevel      bytes, if every character is in the alphabet
//   ByteFallback   <0xHH> is a byte
//   Replace        pattern -> content                           refused
//   Metaspace      U+2581 -> space; nothing in the first token
//   WordPiece      ## off, else a space in front
//   BPEDecoder     suffix -> space                              the last one is dropped
//   Strip          refused at its end                           characters off both ends
//   Fuse           from here on steps see the text as a whole
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/regex.h"
#include "text/vocabulary.h"

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

// The rules that are left for the ends of a text.
struct DecodeRules {
  std::string stripped;        // one character; empty: none
  uint8_t leading = 0;         // so many of it are dropped from the beginning
  uint8_t trailing = 0;        // and from the end
  bool has_byte_runs = false;  // some tokens are single bytes
};

// Tokens that are decoded as if they were spelled otherwise.
using Spellings = std::unordered_map<int32_t, std::string>;

// Makes the pieces of every token. Throws Error for what no token-by-token decoding can do.
DecodeRules CompileDecoder(const DecoderSteps& steps, const Spellings& spellings,
                           Vocabulary& vocabulary);

// The decoders that can be asked for instead of the file's.
DecoderSteps ByteLevelDecoder();
// dropped_spaces: so many at the most, from the beginning of a text.
DecoderSteps SentencePieceDecoder(int32_t dropped_spaces);

}  // namespace sluice::text
