// What Python's str does, for methods and filters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

std::string_view Trimmed(std::string_view text, bool left, bool right);
std::string_view TrimmedOf(Run& run, std::string_view text, std::string_view characters, bool left,
                           bool right);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalized(std::string_view text);
std::string PythonTitle(std::string_view text);  // str.title: every run of letters
std::string Folded(std::string_view text);       // str.casefold
std::string CaseSwapped(std::string_view text);  // str.swapcase
std::string JinjaTitle(std::string_view text);   // the filter: every word

bool HasOnlyCase(std::string_view text, bool is_upper);  // str.isupper and str.islower

// The first line of a text that is not empty, and its size with what ends it, as str.splitlines.
struct Line {
  std::string_view text;
  size_t size;
};
Line FirstLine(std::string_view text);

// `of` and `to` are strings. most: -1 for all.
ChatText Replaced(Run& run, const Value& of, std::string_view from, const Value& to, int64_t most);

// As HTML.
std::string Escaped(std::string_view text);

}  // namespace sluice::text::jinja
