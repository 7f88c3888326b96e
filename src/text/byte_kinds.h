// Kinds of bytes, eight of them: what a token's text has none of need not be looked for in it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice::text {

// One bit. What stops begin with is cut finely, what most text has is one kind.
constexpr uint8_t KindOf(uint8_t byte) {
  const char c = static_cast<char>(byte);
  if (c == '\n' || c == '<') return 1;
  if (c >= 'A' && c <= 'F') return 2;
  if (c >= 'G' && c <= 'O') return 4;
  if (c >= 'P' && c <= 'T') return 8;
  if (c >= 'U' && c <= 'Z') return 16;
  if (c == '#' || c == '`' || c == '-' || c == '*' || c == '=' || c == '[') return 32;
  if (byte >= 0x80 || c == ' ' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) return 128;
  return 64;
}

inline uint8_t KindsOf(std::string_view text) {
  static constexpr auto kKinds = [] {
    std::array<uint8_t, 256> kinds = {};
    for (size_t byte = 0; byte < kinds.size(); ++byte) {
      kinds[byte] = KindOf(static_cast<uint8_t>(byte));
    }
    return kinds;
  }();
  uint8_t kinds = 0;
  for (const char c : text) kinds |= kKinds[static_cast<uint8_t>(c)];
  return kinds;
}

}  // namespace sluice::text
