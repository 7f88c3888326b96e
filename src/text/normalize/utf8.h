// UTF-8 as Unicode defines it (table 3-7), byte by byte and character by character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The properties of a character by its first byte: its bytes, and the range of the second.
struct Utf8Lead {
  uint8_t length;  // 0: no character begins with this byte
  uint8_t low;
  uint8_t high;
};

constexpr Utf8Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

constexpr bool IsContinuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

struct CodePoint {
  uint32_t value;
  uint32_t size;  // in bytes
};

// The first character of valid UTF-8 that is not empty.
inline CodePoint FirstOf(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | (at(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | (at(1) & 0x3Fu) << 6 | (at(2) & 0x3Fu), 3};
  return {(lead & 0x07u) << 18 | (at(1) & 0x3Fu) << 12 | (at(2) & 0x3Fu) << 6 | (at(3) & 0x3Fu), 4};
}

// The last one.
inline CodePoint LastOf(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && IsContinuation(static_cast<uint8_t>(text[begin]))) --begin;
  return FirstOf(text.substr(begin));
}

inline void AppendUtf8(uint32_t c, std::string& text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

// Bytes of the longest prefix that is valid.
inline size_t ValidPrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Lead lead = LeadOf(static_cast<uint8_t>(text[at]));
    if (lead.length == 0 || text.size() - at < lead.length) return at;
    for (size_t i = 1; i < lead.length; ++i) {
      const auto byte = static_cast<uint8_t>(text[at + i]);
      if (i == 1 ? byte < lead.low || byte > lead.high : !IsContinuation(byte)) return at;
    }
    at += lead.length;
  }
  return at;
}

inline bool IsUtf8(std::string_view text) { return ValidPrefix(text) == text.size(); }

// f(uint32_t code_point, std::string_view its_bytes) for each character of valid UTF-8.
template <typename F>
void ForEachCharacter(std::string_view text, F f) {
  while (!text.empty()) {
    const CodePoint c = FirstOf(text);
    f(c.value, text.substr(0, c.size));
    text.remove_prefix(c.size);
  }
}

}  // namespace sluice::text
