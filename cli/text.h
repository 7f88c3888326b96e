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

}  // namespace sluice::cli
