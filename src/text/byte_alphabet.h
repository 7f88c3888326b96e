// GPT-2's alphabet: a printable character for each byte. Bytes that print stand for themselves, the
// others are U+0100 and up, in their order.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/normalize/utf8.h"

namespace sluice::text {

struct ByteAlphabet {
  static constexpr uint32_t kCharacters = 0x144;
  std::array<int16_t, kCharacters> byte = {};  // of a character; -1: none
  std::array<uint16_t, 256> character = {};    // of a byte

  constexpr ByteAlphabet() {
    byte.fill(-1);
    uint16_t next = 0x100;
    for (uint16_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const uint16_t c = prints ? b : next++;
      character[b] = c;
      byte[c] = static_cast<int16_t>(b);
    }
  }
};
inline constexpr ByteAlphabet kByteAlphabet;

// Replaces `bytes` by what a token stands for; false when it has a character outside the alphabet.
inline bool FromByteAlphabet(std::string_view token, std::string& bytes) {
  bytes.clear();
  while (!token.empty()) {
    const CodePoint c = FirstOf(token);
    if (c.value >= ByteAlphabet::kCharacters || kByteAlphabet.byte[c.value] < 0) return false;
    bytes.push_back(static_cast<char>(kByteAlphabet.byte[c.value]));
    token.remove_prefix(c.size);
  }
  return true;
}

inline void AppendInByteAlphabet(std::string_view bytes, std::string& token) {
  for (const char b : bytes) AppendUtf8(kByteAlphabet.character[static_cast<uint8_t>(b)], token);
}

}  // namespace sluice::text
