#include "text/jinja/strings.h"

#include <algorithm>
#include <vector>

#include "text/jinja/find.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

template <typename IsTaken>
std::string_view TrimmedIf(std::string_view text, bool left, bool right, IsTaken is_taken) {
  while (left && !text.empty() && is_taken(FirstOf(text))) text.remove_prefix(FirstOf(text).size);
  while (right && !text.empty() && is_taken(LastOf(text))) text.remove_suffix(LastOf(text).size);
  return text;
}

// Each word's first character in upper case, the others in lower case.
template <typename IsInWord>
std::string Titled(std::string_view text, IsInWord is_in_word) {
  std::string made;
  bool is_inside = false;
  ForEachCharacter(text, [&](uint32_t c, std::string_view) {
    const bool is_part = is_in_word(c);
    if (is_part && !is_inside) {
      AppendUpper(c, made);
    } else {
      AppendLower(c, made);
    }
    is_inside = is_part;
  });
  return made;
}

}  // namespace

bool IsPythonSpace(uint32_t c) { return IsSpace(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view Trimmed(std::string_view text, bool left, bool right) {
  return TrimmedIf(text, left, right, [](CodePoint c) { return IsPythonSpace(c.value); });
}

std::string_view TrimmedOf(Run& run, std::string_view text, std::string_view characters, bool left,
                           bool right) {
  run.Charge(text.size());
  run.Charge(8 * characters.size());
  std::vector<uint32_t> set;
  ForEachCharacter(characters, [&](uint32_t c, std::string_view) { set.push_back(c); });
  std::sort(set.begin(), set.end());
  return TrimmedIf(text, left, right, [&](CodePoint c) {
    return std::binary_search(set.begin(), set.end(), c.value);
  });
}

std::string Upper(std::string_view text) {
  std::string made;
  ForEachCharacter(text, [&](uint32_t c, std::string_view) { AppendUpper(c, made); });
  return made;
}

std::string Lower(std::string_view text) {
  std::string made;
  ForEachCharacter(text, [&](uint32_t c, std::string_view) { AppendLower(c, made); });
  return made;
}

std::string Capitalized(std::string_view text) {
  if (text.empty()) return "";
  const CodePoint first = FirstOf(text);
  std::string made;
  AppendUpper(first.value, made);
  return made.append(Lower(text.substr(first.size)));
}

std::string PythonTitle(std::string_view text) { return Titled(text, IsCased); }

std::string JinjaTitle(std::string_view text) {
  return Titled(text, [](uint32_t c) {
    constexpr std::string_view kBreaks = "-({[<";
    return !IsPythonSpace(c) &&
           (c >= 0x80 || kBreaks.find(static_cast<char>(c)) == std::string_view::npos);
  });
}

std::string Replaced(Run& run, std::string_view text, std::string_view from, std::string_view to,
                     int64_t most) {
  std::string made;
  run.Charge(text.size());
  if (from.empty()) {  // in front of every character, and at the end
    int64_t left = most;
    const auto put = [&] {
      if (left == 0) return;
      --left;
      made.append(to);
    };
    ForEachCharacter(text, [&](uint32_t, std::string_view bytes) {
      put();
      made.append(bytes);
      run.Charge(to.size());
    });
    put();
    return made;
  }
  const Finder finder(run, from);
  for (size_t at = 0; most != 0 && (at = finder.In(text)) != std::string_view::npos; --most) {
    made.append(text.substr(0, at)).append(to);
    run.Charge(to.size());
    text.remove_prefix(at + from.size());
  }
  return made.append(text);
}

}  // namespace sluice::text::jinja
