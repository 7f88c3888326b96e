// Base64 with its padding (RFC 4648).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

constexpr std::array<int8_t, 256> DigitsOfBase64() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> values = {};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return values;
}

// Replaces `bytes`; false for what is not base64.
inline bool FromBase64(std::string_view text, std::string& bytes) {
  static constexpr std::array<int8_t, 256> kValues = DigitsOfBase64();
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t digit = kValues[static_cast<uint8_t>(text[i])];
    const bool is_padding = i >= text.size() - padding;
    if (digit < 0 && !is_padding) return false;
    bits = bits << 6 | static_cast<uint32_t>(is_padding ? 0 : digit);
    if (i % 4 != 3) continue;
    const size_t count = i + 1 == text.size() ? 3 - padding : 3;
    for (size_t b = 0; b < count; ++b) {
      bytes.push_back(static_cast<char>(bits >> (16 - 8 * b) & 0xFF));
    }
  }
  return true;
}

}  // namespace sluice::text
