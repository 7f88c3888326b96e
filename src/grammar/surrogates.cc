#include "grammar/surrogates.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sluice::grammar {
namespace {

constexpr std::string_view kSurrogates = R"(\ud800-\udfff)";
constexpr uint32_t kFirst = 0xd800;
constexpr uint32_t kLast = 0xdfff;

// Where the quoted or bracketed text that begins at `from` ends: after `last`.
size_t EndOf(std::string_view text, size_t from, char last) {
  for (size_t i = from + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == last) {
      return i + 1;
    }
  }
  return text.size();
}

// One character of a class, taken off its front: written as it is, or as \n, \xa0, \ud7ff.
uint32_t TakeCharacter(std::string_view& text) {
  size_t size = 1;
  uint32_t value = static_cast<unsigned char>(text[0]);
  if (text[0] == '\\' && text.size() > 1) {
    size = 2;
    value = static_cast<unsigned char>(text[1]);
    const size_t digits = text[1] == 'x' ? 2 : text[1] == 'u' ? 4 : text[1] == 'U' ? 8 : 0;
    if (digits > 0 && text.size() >= size + digits) {
      std::from_chars(text.data() + size, text.data() + size + digits, value, 16);
      size += digits;
    }
  }
  text.remove_prefix(size);
  return value;
}

// `members`: between the brackets. A range over the surrogates becomes the one before and the one
// after.
void WriteMembers(std::string_view members, std::string& written) {
  while (!members.empty()) {
    const std::string_view begin = members;
    const uint32_t first = TakeCharacter(members);
    const std::string_view name = begin.substr(0, begin.size() - members.size());
    written.append(name);
    if (members.size() < 2 || members[0] != '-') continue;
    members.remove_prefix(1);
    const std::string_view end = members;
    const uint32_t last = TakeCharacter(members);
    if (first < kFirst && last > kLast) written.append(R"(-\ud7ff\ue000)");
    written.append("-").append(end.substr(0, end.size() - members.size()));
  }
}

}  // namespace

void ExcludeSurrogates(std::string& rules) {
  const std::string_view text = rules;
  std::string written;
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = std::min(text.find_first_of("\"[", at), text.size());
    written.append(text.substr(at, begin - at));
    if (begin == text.size()) break;
    at = EndOf(text, begin, text[begin] == '"' ? '"' : ']');
    const std::string_view part = text.substr(begin, at - begin);
    if (part.starts_with("[^") && part.ends_with("]") &&
        !part.ends_with(std::string(kSurrogates) + "]")) {
      written.append(part.substr(0, part.size() - 1)).append(kSurrogates).append("]");
    } else if (part.starts_with("[") && part.ends_with("]")) {
      written.append("[");
      WriteMembers(part.substr(1, part.size() - 2), written);
      written.append("]");
    } else {
      written.append(part);
    }
  }
  rules = std::move(written);
}

}  // namespace sluice::grammar
