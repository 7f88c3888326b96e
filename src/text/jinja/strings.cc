#include "text/jinja/strings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/jinja/characters.h"
#include "text/jinja/find.h"
#include "text/jinja/marked_text.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

template <typename IsTaken>
std::string_view TrimmedIf(std::string_view text, bool left, bool right, IsTaken is_taken) {
  while (left && !text.empty() && is_taken(FirstOf(text))) text.remove_prefix(FirstOf(text).size);
  while (right && !text.empty() && is_taken(LastOf(text))) text.remove_suffix(LastOf(text).size);
  return text;
}

// A capital sigma at the end of a word becomes another letter than inside one.
bool EndsWord(std::string_view text, size_t at, size_t size) {
  std::string_view before = text.substr(0, at);
  while (!before.empty() && IsCaseIgnorable(LastOf(before).value)) {
    before.remove_suffix(LastOf(before).size);
  }
  std::string_view behind = text.substr(at + size);
  while (!behind.empty() && IsCaseIgnorable(FirstOf(behind).value)) {
    behind.remove_prefix(FirstOf(behind).size);
  }
  return !before.empty() && IsCased(LastOf(before).value) &&
         (behind.empty() || !IsCased(FirstOf(behind).value));
}

void AppendLowerAt(std::string_view text, size_t at, uint32_t c, std::string& made) {
  constexpr uint32_t kSigma = 0x3A3;
  if (c == kSigma && EndsWord(text, at, 2)) {
    made.append("\u03C2");
  } else {
    AppendLower(c, made);
  }
}

}  // namespace

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
  size_t at = 0;
  ForEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    AppendLowerAt(text, at, c, made);
    at += bytes.size();
  });
  return made;
}

std::string Capitalized(std::string_view text) {
  if (text.empty()) return "";
  const CodePoint first = FirstOf(text);
  std::string made;
  AppendTitle(first.value, made);
  for (size_t at = first.size; at < text.size();) {
    const CodePoint c = FirstOf(text.substr(at));
    AppendLowerAt(text, at, c.value, made);
    at += c.size;
  }
  return made;
}

std::string PythonTitle(std::string_view text) {
  std::string made;
  bool is_inside = false;
  size_t at = 0;
  ForEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    if (IsCased(c) && !is_inside) {
      AppendTitle(c, made);
    } else {
      AppendLowerAt(text, at, c, made);
    }
    at += bytes.size();
    is_inside = IsCased(c);
  });
  return made;
}

std::string JinjaTitle(std::string_view text) {
  constexpr std::string_view kBreaks = "-({[<";
  const auto is_break = [&](uint32_t c) {
    return IsPythonSpace(c) ||
           (c < 0x80 && kBreaks.find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string made;
  while (!text.empty()) {
    const CodePoint first = FirstOf(text);
    size_t size = first.size;
    if (is_break(first.value)) {
      made.append(text.substr(0, size));
    } else {
      AppendUpper(first.value, made);
      while (size < text.size() && !is_break(FirstOf(text.substr(size)).value)) {
        size += FirstOf(text.substr(size)).size;
      }
      made.append(Lower(text.substr(first.size, size - first.size)));
    }
    text.remove_prefix(size);
  }
  return made;
}

std::string Folded(std::string_view text) {
  std::string made;
  ForEachCharacter(text, [&](uint32_t c, std::string_view) { AppendFolded(c, made); });
  return made;
}

std::string CaseSwapped(std::string_view text) {
  std::string made;
  size_t at = 0;
  ForEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    const LetterCase letter = CaseOf(c);
    if (letter == LetterCase::kUpper) {
      AppendLowerAt(text, at, c, made);
    } else if (letter == LetterCase::kLower) {
      AppendUpper(c, made);
    } else {
      made.append(bytes);
    }
    at += bytes.size();
  });
  return made;
}

bool HasOnlyCase(std::string_view text, bool is_upper) {
  bool has_upper = false;
  bool has_other = false;
  ForEachCharacter(text, [&](uint32_t c, std::string_view) {
    const LetterCase letter = CaseOf(c);
    const LetterCase wanted = is_upper ? LetterCase::kUpper : LetterCase::kLower;
    has_upper = has_upper || letter == wanted;
    has_other = has_other || (letter != wanted && letter != LetterCase::kNone);
  });
  return has_upper && !has_other;
}

Line FirstLine(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = FirstOf(text.substr(at));
    const bool ends = (c.value >= 0xA && c.value <= 0xD) || (c.value >= 0x1C && c.value <= 0x1E) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    if (ends) {
      const size_t size = text.substr(at, 2) == "\r\n" ? 2 : c.size;
      return {text.substr(0, at), at + size};
    }
    at += c.size;
  }
  return {text, text.size()};
}

ChatText Replaced(Run& run, const Value& of, std::string_view from, const Value& to, int64_t most) {
  ChatText made;
  std::string_view text = *of.AsString();
  const std::string_view by = *to.AsString();
  run.Charge(text.size());
  if (from.empty()) {  // before every character, and at the end
    int64_t left = most;
    const auto put = [&] {
      if (left == 0) return;
      --left;
      AppendText(made, by, to.Own());
    };
    ForEachCharacter(text, [&](uint32_t, std::string_view bytes) {
      put();
      AppendPart(made, of, bytes);
      run.Charge(by.size());
    });
    put();
    return made;
  }
  const Finder finder(run, from);
  for (size_t at = 0; most != 0 && (at = finder.In(text)) != std::string_view::npos; --most) {
    AppendPart(made, of, text.substr(0, at));
    AppendText(made, by, to.Own());
    run.Charge(by.size());
    text.remove_prefix(at + from.size());
  }
  AppendPart(made, of, text);
  return made;
}

std::string Escaped(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&':
        made.append("&amp;");
        break;
      case '<':
        made.append("&lt;");
        break;
      case '>':
        made.append("&gt;");
        break;
      case '"':
        made.append("&#34;");
        break;
      case '\'':
        made.append("&#39;");
        break;
      default:
        made.push_back(c);
    }
  }
  return made;
}

}  // namespace sluice::text::jinja
