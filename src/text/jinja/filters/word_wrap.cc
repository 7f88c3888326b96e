// The filter wordwrap: each line of a text as Python's textwrap wraps it.
#include <algorithm>
#include <deque>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/strings.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

using Text = std::u32string_view;

bool IsGap(char32_t c) { return c == ' ' || (c >= 9 && c <= 13); }
bool IsWord(char32_t c) { return c == '_' || IsPythonAlnum(c); }
bool IsPythonLetter(char32_t c) { return IsWord(c) && !IsDecimalDigit(c); }
bool IsWordOrPoint(char32_t c) {
  return IsWord(c) || (c < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(c)) !=
                                       std::string_view::npos);
}

// Parts a line where it may be broken.
class Chunker {
 public:
  Chunker(Run& run, Text line, bool at_hyphens) : run_(run), line_(line), at_hyphens_(at_hyphens) {}

  std::deque<Text> Chunks() const {
    std::deque<Text> chunks;
    for (size_t at = 0; at < line_.size();) {
      const size_t end = EndOf(at);
      run_.Charge(end - at);
      chunks.push_back(line_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool Is(size_t at, bool (*is)(char32_t)) const { return at < line_.size() && is(line_[at]); }
  bool IsDash(size_t at) const { return at < line_.size() && line_[at] == '-'; }

  // Two or more dashes before a word: the place after them, or 0.
  size_t DashesEnd(size_t at) const {
    size_t end = at;
    while (IsDash(end)) ++end;
    run_.Charge(end - at);
    return end >= at + 2 && Is(end, IsWord) ? end : 0;
  }

  size_t EndOf(size_t begin) const {
    size_t end = begin;
    while (Is(end, IsGap)) ++end;
    if (end > begin) return end;
    if (!at_hyphens_) {
      while (end < line_.size() && !IsGap(line_[end])) ++end;
      return end;
    }
    if (begin > 0 && IsWordOrPoint(line_[begin - 1])) {
      if (const size_t dashes = DashesEnd(begin)) return dashes;
    }
    for (end = begin + 1;; ++end) {
      if (IsDash(end) && BreaksAfter(end)) return end + 1;
      if (end >= line_.size() || IsGap(line_[end])) return end;
      if (IsDash(end) && IsWordOrPoint(line_[end - 1]) && DashesEnd(end) > 0) return end;
    }
  }

  // A hyphen between letters.
  bool BreaksAfter(size_t at) const {
    const bool has_word = at >= 2 && IsPythonLetter(line_[at - 1]) && IsPythonLetter(line_[at - 2]);
    const bool has_part = at >= 3 && IsPythonLetter(line_[at - 1]) && line_[at - 2] == '-' &&
                          IsPythonLetter(line_[at - 3]);
    if (!has_word && !has_part) return false;
    return Is(at + 1, IsPythonLetter) && Is(at + (IsDash(at + 2) ? 3 : 2), IsPythonLetter);
  }

  Run& run_;
  Text line_;
  bool at_hyphens_;
};

struct Style {
  size_t width;
  bool breaks_words;
  bool at_hyphens;
};

bool IsBlank(Text chunk) {
  return std::all_of(chunk.begin(), chunk.end(), [](char32_t c) { return IsPythonSpace(c); });
}

// The part of a word that is too long for any line, which goes to this one.
size_t PartOf(Text chunk, size_t room, const Style& style) {
  if (!style.at_hyphens || chunk.size() <= room) return room;
  const size_t hyphen = chunk.substr(0, room).rfind('-');
  const bool is_inside = hyphen != Text::npos && hyphen > 0 &&
                         chunk.substr(0, hyphen).find_first_not_of('-') != Text::npos;
  return is_inside ? hyphen + 1 : room;
}

void AppendLine(Run& run, Text line, const Style& style, List& lines) {
  std::deque<Text> chunks = Chunker(run, line, style.at_hyphens).Chunks();
  bool is_first = true;
  while (!chunks.empty()) {
    run.Charge();
    if (!is_first && IsBlank(chunks.front())) chunks.pop_front();
    std::vector<Text> taken;
    size_t size = 0;
    while (!chunks.empty() && size + chunks.front().size() <= style.width) {
      size += chunks.front().size();
      taken.push_back(chunks.front());
      chunks.pop_front();
    }
    if (!chunks.empty() && chunks.front().size() > style.width) {
      if (style.breaks_words) {
        const size_t part = PartOf(chunks.front(), style.width - size, style);
        taken.push_back(chunks.front().substr(0, part));
        chunks.front().remove_prefix(std::min(part, chunks.front().size()));
      } else if (taken.empty()) {
        taken.push_back(chunks.front());
        chunks.pop_front();
      }
    }
    if (!taken.empty() && IsBlank(taken.back())) taken.pop_back();
    if (taken.empty()) continue;
    is_first = false;
    std::string text;
    for (const Text chunk : taken) {
      for (const char32_t c : chunk) AppendUtf8(c, text);
    }
    run.Charge(text.size());
    lines.push_back(Value::Of(std::move(text)));
  }
}

}  // namespace

Value WordWrap(Run& run, const Value& value, const Arguments& arguments) {
  if (value.AsString() == nullptr) {
    run.Refuse("wordwrap of a " + std::string(value.TypeName()), "a string");
  }
  const int64_t width = IntegerArgument(run, arguments, 0, "width", 79);
  const Style style = {static_cast<size_t>(std::max<int64_t>(width, 0)),
                       FlagArgument(arguments, 1, "break_long_words", true),
                       FlagArgument(arguments, 3, "break_on_hyphens", true)};
  const bool is_given = GivenArgument(arguments, 2, "wrapstring") != nullptr;
  const Value between = is_given ? *arguments.Get(2, "wrapstring") : Value::Of(std::string("\n"));
  if (between.AsString() == nullptr) run.Refuse("the argument wrapstring", "a string");
  if (between.IsMarkup()) run.Refuse("a wrapstring that is Markup", "a plain string");
  run.Charge(value.AsString()->size());
  std::string made;
  bool is_first = true;
  for (std::string_view rest = *value.AsString(); !rest.empty();) {
    const Line line = FirstLine(rest);
    rest.remove_prefix(line.size);
    if (width <= 0) run.Refuse("a width of " + std::to_string(width), "more than 0");
    std::u32string wide;
    ForEachCharacter(line.text, [&](uint32_t c, std::string_view) { wide.push_back(c); });
    List lines;
    AppendLine(run, wide, style, lines);
    if (lines.empty()) lines.push_back(Value::Of(std::string()));
    for (const Value& text : lines) {
      run.ChargeElement(made.size() + between.AsString()->size());
      if (!std::exchange(is_first, false)) {
        run.Charge(between.AsString()->size());
        made.append(*between.AsString());
      }
      made.append(*text.AsString());
    }
  }
  return run.Made(std::move(made));
}

}  // namespace sluice::text::jinja
