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

// Whether a control character begins here, and the bytes it has: one of C0 and DEL, two of C1.
inline size_t ControlSize(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at(0) < 0x20 || at(0) == 0x7f) return 1;
  // 0xc2 begins a character and is never inside of one.
  return at(0) == 0xc2 && text.size() > 1 && at(1) >= 0x80 && at(1) < 0xa0 ? 2 : 0;
}

// "\x1b" of a control character.
inline std::string ControlEscape(std::string_view control) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(control.back());
  return std::string("\\x").append(1, kHex[code >> 4]).append(1, kHex[code & 15]);
}

// In quotes and on one line: line ends and other control characters as escapes.
inline std::string QuotedLine(std::string_view text) {
  std::string line = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const size_t control = ControlSize(text);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (c == '"' || c == '\\') {
      line.append("\\").append(1, c);
    } else if (control > 0) {
      line += ControlEscape(text.substr(0, control));
    } else {
      line += c;
    }
    text.remove_prefix(control > 0 ? control : 1);
  }
  return line + "\"";
}

// Lines of at most `columns`, the second and later ones with `indent` spaces before them. Lines
// that the text has stay.
inline std::string Wrapped(std::string_view text, size_t columns, size_t indent) {
  std::string wrapped;
  while (true) {
    size_t end = text.find('\n');
    if (end > columns && text.size() > columns) {
      end = text.rfind(' ', columns);
      if (end == std::string_view::npos || end == 0) end = text.find_first_of(" \n");
    }
    if (end == std::string_view::npos) return wrapped.append(text);
    wrapped.append(text.substr(0, end)).append("\n").append(indent, ' ');
    text.remove_prefix(end + 1);
  }
}

}  // namespace sluice::cli
