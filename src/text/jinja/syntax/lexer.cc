#include "text/jinja/syntax/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "support/check.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

using Kind = Token::Kind;

bool IsNameStart(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? true : c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view WithoutLeadingSpaces(std::string_view text) {
  while (!text.empty() && IsSpace(LastOf(text).value)) text.remove_suffix(LastOf(text).size);
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    for (size_t i = 0; i < source.size(); ++i) {  // every end of a line is \n
      if (source[i] == '\r') {
        source_.push_back('\n');
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_.push_back(source[i]);
      }
    }
    if (source_.ends_with('\n')) source_.pop_back();
    rest_ = source_;
  }

  std::vector<Token> Run() {
    while (!rest_.empty()) {
      const size_t tag = FindTag();
      const std::string_view before = rest_.substr(0, tag);
      if (tag == std::string_view::npos) {
        AddData(before);
        break;
      }
      const char type = rest_[tag + 1];
      const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : ' ';
      AddData(DataBefore(before, type, sign));
      CountLines(before);
      rest_.remove_prefix(tag + 2);
      if (sign == '-' || sign == '+') rest_.remove_prefix(1);
      if (type == '#') {
        SkipComment();
      } else if (type == '%' && TakeRaw()) {
        continue;
      } else {
        AddTag(type);
      }
    }
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void Add(Kind kind, std::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }
  void AddData(std::string_view text) {
    if (!text.empty()) Add(Kind::kData, text);
  }
  void CountLines(std::string_view text) {
    line_ += static_cast<int32_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void Take(size_t size) {
    CountLines(rest_.substr(0, size));
    begins_line_ = size > 0 && rest_[size - 1] == '\n';
    rest_.remove_prefix(size);
  }

  size_t FindTag() const {
    for (size_t at = rest_.find('{'); at != std::string_view::npos; at = rest_.find('{', at + 1)) {
      const char next = at + 1 < rest_.size() ? rest_[at + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // A minus takes all white space before a tag; a block or a comment that comes first in
  // its line takes the line's own.
  std::string_view DataBefore(std::string_view text, char type, char sign) const {
    if (sign == '-') return WithoutLeadingSpaces(text);
    if (sign == '+' || type == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !begins_line_) return text;
    return WithoutLeadingSpaces(text.substr(begin)).empty() ? text.substr(0, begin) : text;
  }

  // What follows a tag: white space after a minus, else the end of the line after a block.
  void EndTag(char sign, bool is_block) {
    if (sign == '-') {
      size_t size = 0;
      while (size < rest_.size() && IsSpace(FirstOf(rest_.substr(size)).value)) {
        size += FirstOf(rest_.substr(size)).size;
      }
      Take(size);
    } else if (sign != '+' && is_block && rest_.starts_with('\n')) {
      Take(1);
    } else {
      begins_line_ = false;
    }
  }

  void SkipComment() {
    const size_t end = rest_.find("#}");
    if (end == std::string_view::npos) ThrowAt(line_, "a comment without its end", "#}");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    Take(end + 2);
    EndTag(sign, true);
  }

  // {% raw %}: text up to {% endraw %}.
  bool TakeRaw() {
    size_t at = 0;
    const auto skip = [&](std::string_view text, size_t from) {
      while (from < text.size() &&
             (text[from] == ' ' || text[from] == '\n' || text[from] == '\t')) {
        ++from;
      }
      return from;
    };
    at = skip(rest_, 0);
    if (rest_.substr(at, 3) != "raw") return false;
    at = skip(rest_, at + 3);
    char sign = ' ';
    if (rest_.substr(at, 3) == "+%}") ThrowAt(line_, "{% raw +%}", "{% raw %} or {% raw -%}");
    if (rest_.substr(at, 1) == "-") sign = rest_[at++];
    if (rest_.substr(at, 2) != "%}") return false;
    Take(at + 2);
    EndTag(sign, false);  // the end of the line is text
    for (size_t open = rest_.find("{%"); open != std::string_view::npos;
         open = rest_.find("{%", open + 1)) {
      size_t name = open + 2;
      char before = ' ';
      if (rest_.substr(name, 1) == "-" || rest_.substr(name, 1) == "+") before = rest_[name++];
      name = skip(rest_, name);
      if (rest_.substr(name, 6) != "endraw") continue;
      name = skip(rest_, name + 6);
      char after = ' ';
      if (rest_.substr(name, 1) == "-" || rest_.substr(name, 1) == "+") after = rest_[name++];
      if (rest_.substr(name, 2) != "%}") continue;
      AddData(DataBefore(rest_.substr(0, open), '%', before));
      Take(name + 2);
      EndTag(after, true);
      return true;
    }
    ThrowAt(line_, "raw without its end", "{% endraw %}");
  }

  void AddTag(char type) {
    const bool is_block = type == '%';
    Add(is_block ? Kind::kBeginBlock : Kind::kBeginPrint, "");
    const std::string_view end = is_block ? "%}" : "}}";
    int depth = 0;  // of brackets: }} may close two
    for (;;) {
      while (!rest_.empty() && IsSpace(FirstOf(rest_).value)) Take(FirstOf(rest_).size);
      if (rest_.empty()) ThrowAt(line_, "a tag without its end", end);
      const bool has_sign =
          (rest_[0] == '-' || (rest_[0] == '+' && is_block)) && rest_.substr(1, 2) == end;
      if (has_sign || (depth == 0 && rest_.starts_with(end))) {
        const char sign = has_sign ? rest_[0] : ' ';
        Take(has_sign ? 3 : 2);
        Add(is_block ? Kind::kEndBlock : Kind::kEndPrint, "");
        return EndTag(sign, is_block);
      }
      const char c = rest_[0];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (depth < 0) ThrowAt(line_, std::string(1, c), "a bracket to close");
      AddWord();
    }
  }

  void AddWord() {
    const char c = rest_[0];
    size_t size = 1;
    if (IsNameStart(c)) {
      while (size < rest_.size() && (IsNameStart(rest_[size]) || IsDigit(rest_[size]))) ++size;
      Add(Kind::kName, rest_.substr(0, size));
    } else if (IsDigit(c)) {
      return AddNumber();
    } else if (c == '"' || c == '\'') {
      return AddString(c);
    } else {
      constexpr std::array<std::string_view, 6> kLong = {"**", "//", "==", "!=", "<=", ">="};
      for (const std::string_view name : kLong) {
        if (rest_.starts_with(name)) size = 2;
      }
      if (size == 1 && std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
        ThrowAt(line_, ToText(rest_.substr(0, FirstOf(rest_).size)), "an expression");
      }
      Add(Kind::kOperator, rest_.substr(0, size));
    }
    Take(size);
  }

  // Digits that `is_digit` takes, with underscores between them.
  template <typename IsTaken>
  size_t DigitsFrom(size_t at, IsTaken is_taken) const {
    const auto is_digit = [&](size_t i) { return i < rest_.size() && is_taken(rest_[i]); };
    while (is_digit(at) ||
           (at < rest_.size() && rest_[at] == '_' && is_digit(at - 1) && is_digit(at + 1)))
      ++at;
    return at;
  }

  // 0x1F, 0o17 and 0b11.
  bool AddOtherBase() {
    const char mark =
        rest_.size() > 2 && rest_[0] == '0' ? static_cast<char>(rest_[1] | 0x20) : ' ';
    const int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (base == 0) return false;
    const auto is_digit = [&](char c) {
      const char lower = static_cast<char>(c | 0x20);
      return base == 16 ? IsDigit(c) || (lower >= 'a' && lower <= 'f') : c >= '0' && c < '0' + base;
    };
    const size_t begin = rest_[2] == '_' ? 3 : 2;
    const size_t end =
        begin < rest_.size() && is_digit(rest_[begin]) ? DigitsFrom(begin, is_digit) : begin;
    if (end == begin) return false;
    std::string digits(rest_.substr(begin, end - begin));
    std::erase(digits, '_');
    uint64_t value = 0;
    const auto error =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec;
    if (error != std::errc() || value > INT64_MAX)
      ThrowAt(line_, std::string(rest_.substr(0, end)), "a number of 64 bits");
    Add(Kind::kInteger, std::to_string(value));
    Take(end);
    return true;
  }

  void AddNumber() {
    if (AddOtherBase()) return;
    const auto digits = [&](size_t at) { return DigitsFrom(at, IsDigit); };
    size_t size = digits(0);
    bool is_real = false;
    // a.1.5 has no number with a point in it.
    const bool is_member =
        !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == ".";
    if (!is_member && size + 1 < rest_.size() && rest_[size] == '.' && IsDigit(rest_[size + 1])) {
      is_real = true;
      size = digits(size + 1);
    }
    if (!is_member && size < rest_.size() && (rest_[size] | 0x20) == 'e') {
      const size_t sign =
          size + 1 < rest_.size() && (rest_[size + 1] == '-' || rest_[size + 1] == '+');
      if (size + 1 + sign < rest_.size() && IsDigit(rest_[size + 1 + sign])) {
        is_real = true;
        size = digits(size + 1 + sign);
      }
    }
    if (!is_real && rest_[0] == '0') {  // 0 stands alone, or with others of its kind
      size = DigitsFrom(0, [](char c) { return c == '0'; });
    }
    std::string text(rest_.substr(0, size));
    std::erase(text, '_');
    Add(is_real ? Kind::kReal : Kind::kInteger, text);
    Take(size);
  }

  void AddString(char quote) {
    std::string text;
    size_t at = 1;
    for (; at < rest_.size() && rest_[at] != quote; ++at) {
      if (rest_[at] != '\\' || at + 1 == rest_.size()) {
        text.push_back(rest_[at]);
        continue;
      }
      at = AddEscape(at + 1, text);
    }
    if (at >= rest_.size()) ThrowAt(line_, "a string without its end", std::string(1, quote));
    Add(Kind::kString, text);
    Take(at + 1);
  }

  // The escape with its letter at `at`; gives its last character's place.
  size_t AddEscape(size_t at, std::string& text) {
    constexpr std::string_view kLetters = "nrtbfav\\'\"";
    constexpr std::string_view kMeant = "\n\r\t\b\f\a\v\\'\"";
    const char letter = rest_[at];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t c = 0;
      for (size_t i = 1; i <= digits; ++i) {
        const char digit = at + i < rest_.size() ? rest_[at + i] : ' ';
        const char lower = static_cast<char>(digit | 0x20);
        if (IsDigit(digit)) {
          c = c * 16 + static_cast<uint32_t>(digit - '0');
        } else if (lower >= 'a' && lower <= 'f') {
          c = c * 16 + static_cast<uint32_t>(lower - 'a' + 10);
        } else {
          ThrowAt(line_, "an escape that is cut short", "hexadecimal digits");
        }
      }
      if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) ThrowAt(line_, "an escape", "a character");
      AppendUtf8(c, text);
      return at + digits;
    }
    if (letter == '\n') return at;
    if (letter == 'N') ThrowAt(line_, "a character by its name", "\\u or \\U");
    if (letter >= '0' && letter <= '7') {  // up to three digits
      uint32_t c = 0;
      size_t end = at;
      for (; end < std::min(at + 3, rest_.size()) && rest_[end] >= '0' && rest_[end] <= '7';
           ++end) {
        c = c * 8 + static_cast<uint32_t>(rest_[end] - '0');
      }
      AppendUtf8(c, text);
      return end - 1;
    }
    const size_t found = kLetters.find(letter);
    if (found == std::string_view::npos) {
      text.push_back('\\');
      text.push_back(letter);
    } else {
      text.push_back(kMeant[found]);
    }
    return at;
  }

  std::string source_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  int32_t line_ = 1;
  bool begins_line_ = true;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  if (!IsUtf8(source)) ThrowInvalid("template", "bytes that are not UTF-8", "UTF-8");
  return Lexer(source).Run();
}

void ThrowAt(int32_t line, std::string_view what, std::string_view allowed) {
  ThrowInvalid("template, line " + std::to_string(line), std::string(what), std::string(allowed));
}

}  // namespace sluice::text::jinja
