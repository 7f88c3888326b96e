// What tests of the text side compare with: Unicode's rules for bytes that are not UTF-8, and
// vocabularies of bytes that reach all of them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/random.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {

struct LossyText {
  std::string text;
  std::vector<size_t> ends;  // by byte: the size of the text behind what the byte became part of
  size_t whole = 0;          // of the text without a character that is incomplete at the end
};

// Substitution of maximal subparts, written from Unicode's table 3-7: at each place the longest
// prefix of a well-formed sequence is looked for.
inline LossyText Lossy(std::string_view bytes) {
  constexpr struct {
    int from, to;
    int second_low, second_high;
    size_t length;
  } kRows[] = {
      {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
      {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
      {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  LossyText lossy;
  while (!bytes.empty()) {
    size_t good = 0;
    size_t length = 1;
    for (const auto& row : kRows) {
      const int first = static_cast<uint8_t>(bytes[0]);
      if (first < row.from || first > row.to) continue;
      length = row.length;
      good = 1;
      while (good < length && good < bytes.size()) {
        const int next = static_cast<uint8_t>(bytes[good]);
        const int low = good == 1 ? row.second_low : 0x80;
        const int high = good == 1 ? row.second_high : 0xBF;
        if (next < low || next > high) break;
        ++good;
      }
    }
    if (good == length) {
      lossy.text.append(bytes.substr(0, good));
    } else {
      lossy.text.append("\uFFFD");
    }
    const bool is_incomplete = good > 0 && good < length && good == bytes.size();
    if (!is_incomplete) lossy.whole = lossy.text.size();
    const size_t took = std::max<size_t>(good, 1);
    lossy.ends.insert(lossy.ends.end(), took, lossy.text.size());
    bytes.remove_prefix(took);
  }
  return lossy;
}

struct ByteVocabulary {
  std::vector<TestToken> tokens;
  std::vector<std::string> bytes;  // of each token
};

// Every byte, pieces of characters, whole texts, added tokens.
inline ByteVocabulary MakeVocabulary(Random& random) {
  ByteVocabulary made;
  const std::string text = "aé中😀\uFFFD <b>";
  std::vector<std::string> seen;
  const auto add = [&](std::string bytes, bool is_special) {
    if (bytes.empty() || std::count(seen.begin(), seen.end(), bytes) > 0) return;
    seen.push_back(bytes);
    made.tokens.push_back({bytes, is_special, is_special});
    made.bytes.push_back(bytes);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)), false);
  for (int i = 0; i < 200; ++i) {
    const auto begin = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
    add(text.substr(begin, static_cast<size_t>(random.Between(1, 8))), false);
  }
  for (int i = 0; i < 40; ++i) {
    std::string bytes;
    for (int64_t n = random.Between(1, 5); n > 0; --n) {
      bytes.push_back(static_cast<char>(random.Between(0x7E, 0xFF)));
    }
    add(bytes, false);
  }
  add("<|中|>", true);
  add("<|end|>", true);
  return made;
}

// A few words, and a token for each byte behind them.
inline std::vector<TestToken> ByteFallbackTokens() {
  std::vector<TestToken> tokens = {Special("<s>"), {"▁"}, {"▁a"}, {"b"}, {"▁▁"}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto index = static_cast<size_t>(byte);
    tokens.push_back({std::string("<0x") + kDigits[index >> 4] + kDigits[index & 15] + ">"});
  }
  return tokens;
}
inline int32_t ByteFallbackId(uint8_t byte) { return 5 + byte; }

}  // namespace sluice::test
