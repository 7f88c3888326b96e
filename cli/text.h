// Figures and names as the command prints them.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "support/number.h"

namespace sluice::cli {

inline std::string Fixed(double value, int digits) {
  char text[400];  // the largest double has 309 digits before the point
  return {text,
          std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, digits).ptr};
}

inline std::string Percent(double share) { return Fixed(100 * share, 2) + " %"; }

inline std::string Quoted(std::string_view text) {
  return std::string("\"").append(text).append("\"");
}

// In quotes and on one line: line ends and other control characters as escapes.
inline std::string QuotedLine(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (c == '"' || c == '\\') {
      line.append("\\").append(1, c);
    } else if (byte < 0x20 || byte == 0x7f) {
      line.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      line += c;
    }
  }
  return line + "\"";
}

}  // namespace sluice::cli
