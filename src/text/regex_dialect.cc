#include "text/regex_dialect.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "support/check.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

// Insides of classes.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWords = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kJoiners = R"(\x{200C}\x{200D})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr std::string_view kAny = R"(\x{0}-\x{10FFFF})";

constexpr std::string_view kCategories =
    " l lu ll lt lm lo m mn mc me n nd nl no p pc pd ps pe pi pf po s sm sc sk so z zs zl zp c cc "
    "cf "
    "cs co cn ";

// What is the same as these, and a string of two letters of which Oniguruma ignores the case.
constexpr std::array<std::string_view, 5> kFoldTogether = {"ss", "st", "ff", "fi", "fl"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

std::string Literal(uint32_t c) {
  std::string made;
  if (c >= 0x80) {
    AppendUtf8(c, made);
    return made;
  }
  if (c < 0x20 || c == 0x7F) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    return made.append("\\x{").append({kDigits[c >> 4], kDigits[c & 15]}).append("}");
  }
  const char letter = static_cast<char>(c);
  if (!IsDigit(letter) && !IsLetter(letter)) made.push_back('\\');
  made.push_back(letter);
  return made;
}

// A set of characters: what a class has inside, and expressions for one character each.
struct Set {
  std::string inside;
  std::vector<std::string> others;

  bool IsEmpty() const { return inside.empty() && others.empty(); }
  std::string Expression(bool is_complement) const {
    if (others.empty()) return (is_complement ? "[^" : "[") + inside + "]";
    std::string made = "(?:";
    if (!inside.empty()) made.append("[").append(inside).append("]");
    for (const std::string& other : others) made.append(made.size() > 3 ? "|" : "").append(other);
    made.append(")");
    return is_complement ? "(?:(?!" + made + ")(?s:.))" : made;
  }
};

// What a backslash begins in a class or outside: a character, or a set.
struct Escaped {
  std::optional<uint32_t> character;
  std::string_view inside;  // of the set
  std::string property;     // or its property
  bool is_complement = false;
};

class Translator {
 public:
  Translator(std::string_view parameter, std::string_view pattern, RegexDialect dialect)
      : parameter_(parameter),
        pattern_(pattern),
        is_oniguruma_(dialect == RegexDialect::kOniguruma) {}

  std::string Run() {
    while (at_ < pattern_.size()) One();
    if (!outer_.empty()) Refuse("a group without its end");
    return std::move(out_);
  }

 private:
  struct Flags {
    bool ignores_case = false;
    bool is_multi_line = false;
    bool dot_is_any = false;
  };
  struct Group {
    Flags flags;
    size_t begin;  // in out_
  };

  [[noreturn]] void Refuse(const std::string& what) const {
    ThrowInvalid(parameter_, ToText(pattern_),
                 "a pattern without " + what + ", which has no exact translation to PCRE2");
  }

  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  bool Is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  uint32_t TakeCharacter() {
    const CodePoint c = FirstOf(pattern_.substr(at_));
    at_ += c.size;
    return c.value;
  }

  void One() {
    const char c = pattern_[at_];
    const char last = std::exchange(last_letter_, '\0');
    switch (c) {
      case '\\':
        ++at_;
        return Escape();
      case '[':
        ++at_;
        out_.append(Class(0));
        return;
      case '(':
        ++at_;
        return BeginGroup();
      case ')':
        ++at_;
        if (outer_.empty()) Refuse("a bracket that closes nothing");
        flags_ = outer_.back().flags;
        outer_.pop_back();
        out_.push_back(')');
        return;
      case '{':
        return Interval();
      case '^':
        ++at_;
        out_.append(is_oniguruma_ || flags_.is_multi_line ? "(?m:^)" : "\\A");
        return;
      case '$':
        ++at_;
        out_.append(is_oniguruma_ || flags_.is_multi_line ? "(?m:$)" : "\\z");
        return;
      case '.':
        ++at_;
        out_.append(flags_.dot_is_any ? "(?s:.)" : "[^\\n]");
        return;
      case '*':
      case '+':
      case '?':
      case '|':
        ++at_;
        out_.push_back(c);
        return;
      default:
        return Character(TakeCharacter(), last);
    }
  }

  void Character(uint32_t c, char last) {
    if (flags_.ignores_case && is_oniguruma_) {
      if (c >= 0x80) Refuse("characters beyond ASCII whose case is ignored");
      const char letter = static_cast<char>(c | 0x20);
      for (const std::string_view pair : kFoldTogether) {
        if (last == pair[0] && letter == pair[1]) {
          Refuse("\"" + std::string(pair) + "\" whose case is ignored");
        }
      }
      last_letter_ = letter;
    }
    out_.append(Literal(c));
  }

  void Escape() {
    if (at_ == pattern_.size()) Refuse("a backslash at its end");
    const std::string words = std::string(kWords).append(is_oniguruma_ ? "" : kJoiners);
    const std::string word = "[" + words + "]";
    if (Take("b")) {
      out_.append("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
    } else if (Take("B")) {
      out_.append("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
    } else if (Take("A")) {
      out_.append("\\A");
    } else if (Take("z")) {
      out_.append("\\z");
    } else if (is_oniguruma_ && Take("Z")) {
      out_.append("\\Z");
    } else if (is_oniguruma_ && Take("R")) {
      out_.append(R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))");
    } else {
      const Escaped escaped = EscapedSet();
      if (escaped.character) return Character(*escaped.character, '\0');
      CheckFolding();
      Set set;
      AddTo(set, escaped);
      out_.append(set.Expression(false));
    }
  }

  // Oniguruma lets a class whose case is ignored match strings: "ss" where it has "ß".
  void CheckFolding() const {
    if (flags_.ignores_case && is_oniguruma_) Refuse("classes whose case is ignored");
  }

  Escaped EscapedSet() {
    if (at_ == pattern_.size()) Refuse("a backslash at its end");
    const uint32_t c = TakeCharacter();
    const bool is_complement = c == 'S' || c == 'W' || c == 'D' || c == 'H';
    switch (c) {
      case 's':
      case 'S':
        return {{}, kSpaces, "", is_complement};
      case 'w':
      case 'W':
        return {{}, "", is_oniguruma_ ? "word" : "rust word", is_complement};
      case 'd':
      case 'D':
        return {{}, "\\p{Nd}", "", is_complement};
      case 'h':
      case 'H':
        return {{}, kHexDigits, "", is_complement};
      case 'p':
      case 'P':
        return Property(c == 'P');
      case 'n':
        return {'\n', {}, {}};
      case 'r':
        return {'\r', {}, {}};
      case 't':
        return {'\t', {}, {}};
      case 'f':
        return {'\f', {}, {}};
      case 'v':
        return {'\v', {}, {}};
      case 'a':
        return {'\a', {}, {}};
      case 'e':
        return {0x1B, {}, {}};
      case 'x':
        return {Is("{") ? Braced() : Hexadecimal(2), {}, {}};
      case 'u':
        return {!is_oniguruma_ && Is("{") ? Braced() : Hexadecimal(4), {}, {}};
      default:
        break;
    }
    if (c < 0x80 && (IsDigit(static_cast<char>(c)) || IsLetter(static_cast<char>(c)))) {
      Refuse(std::string("\\").append(1, static_cast<char>(c)));
    }
    return {c, {}, {}};
  }

  uint32_t Braced() {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos || end - at_ < 2 || end - at_ > 9)
      Refuse("\\x{ without digits");
    ++at_;
    const uint32_t value = Hexadecimal(end - at_);
    ++at_;
    return value;
  }
  uint32_t Hexadecimal(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < pattern_.size() ? pattern_[at_] : '\0';
      const char lower = static_cast<char>(c | 0x20);
      if (IsDigit(c)) {
        value = value << 4 | static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value << 4 | static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        Refuse("\\x or \\u without their digits");
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) Refuse("what is no character");
    return value;
  }

  Escaped Property(bool is_complement) {
    std::string name;
    if (Take("{")) {
      const size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos) Refuse("\\p{ without its end");
      name = pattern_.substr(at_, end - at_);
      at_ = end + 1;
    } else if (!is_oniguruma_ && at_ < pattern_.size()) {
      name = pattern_.substr(at_++, 1);
    } else {
      Refuse("\\p without a name");
    }
    if (name.starts_with('^')) {
      is_complement = !is_complement;
      name.erase(0, 1);
    }
    return {{}, {}, name, is_complement};
  }

  // What a class has inside for it; empty when it is a script.
  std::string InsideOf(const std::string& property) const {
    std::string name;
    for (const char c : property) {
      if (c != ' ' && c != '_' && c != '-')
        name.push_back(IsLetter(c) ? static_cast<char>(c | 0x20) : c);
    }
    if (property == "rust word") return std::string(kWords).append(kJoiners);
    if (name.empty()) Refuse("\\p{}");
    if (name.size() <= 2 && kCategories.find(" " + name + " ") != std::string_view::npos) {
      name[0] = static_cast<char>(name[0] & ~0x20);
      return "\\p{" + name + "}";
    }
    if (name == "alpha" || name == "alphabetic") return "\\p{Alphabetic}";
    if (name == "upper" || name == "uppercase") return "\\p{Uppercase}";
    if (name == "lower" || name == "lowercase") return "\\p{Lowercase}";
    if (name == "space" || name == "whitespace") return std::string(kSpaces);
    if (name == "digit") return "\\p{Nd}";
    if (name == "word") return std::string(kWords);
    if (name == "alnum") return "\\p{Alphabetic}\\p{Nd}";
    if (name == "xdigit") return std::string(kHexDigits);
    if (name == "cntrl") return "\\p{Cc}";
    if (name == "ascii") return "\\x00-\\x7F";
    if (name == "any") return std::string(kAny);
    for (const std::string_view other : {"punct", "graph", "print", "blank", "assigned"}) {
      if (name == other) Refuse("\\p{" + property + "}");
    }
    if (!std::all_of(name.begin(), name.end(), IsLetter)) Refuse("\\p{" + property + "}");
    return "\\p{sc:" + name + "}";
  }

  void AddTo(Set& set, const Escaped& escaped) const {
    const std::string inside =
        escaped.property.empty() ? std::string(escaped.inside) : InsideOf(escaped.property);
    if (escaped.is_complement) {
      set.others.push_back("[^" + inside + "]");
    } else {
      set.inside.append(inside);
    }
  }

  // Behind its bracket. An expression for one character.
  std::string Class(int depth) {
    constexpr int kDeepest = 16;
    if (depth == kDeepest) Refuse("classes nested more than 16 deep");
    CheckFoldingOfClass();
    const bool is_complement = Take("^");
    std::vector<std::string> operands;
    Set set;
    if (Take("]")) set.inside.append("\\]");
    while (!Take("]")) {
      if (at_ >= pattern_.size()) Refuse("a class without its end");
      if (Is("&&")) {
        if (set.IsEmpty()) Refuse("an empty class");
        operands.push_back(set.Expression(false));
        at_ += 2;
        set = {};
      } else if (!is_oniguruma_ && (Is("--") || Is("~~"))) {
        Refuse("-- or ~~ of classes");
      } else if (Take("[:")) {
        Posix(set);
      } else if (Take("[")) {
        set.others.push_back(Class(depth + 1));
      } else {
        Member(set);
      }
    }
    if (set.IsEmpty()) Refuse("an empty class");
    if (operands.empty()) return set.Expression(is_complement);
    operands.push_back(set.Expression(false));
    std::string made = is_complement ? "(?:(?!" : "(?:";
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_last = i + 1 == operands.size();
      made.append(is_last ? "" : "(?=").append(operands[i]).append(is_last ? "" : ")");
    }
    return made.append(is_complement ? ")(?s:.))" : ")");
  }

  void CheckFoldingOfClass() const {
    // One of letters of ASCII has no strings that are the same.
    if (!flags_.ignores_case || !is_oniguruma_) return;
    const std::string_view inside = pattern_.substr(at_, pattern_.find(']', at_) - at_);
    const auto is_plain = [](char c) {
      return c >= 0x20 && c < 0x7F && c != '[' && c != '\\' && c != '^';
    };
    if (!std::all_of(inside.begin(), inside.end(), is_plain)) CheckFolding();
  }

  void Posix(Set& set) {
    const size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) Refuse("[: without its end");
    std::string name(pattern_.substr(at_, end - at_));
    at_ = end + 2;
    const bool is_complement = name.starts_with('^');
    if (is_complement) name.erase(0, 1);
    constexpr std::string_view kNames =
        " alpha upper lower space digit word alnum xdigit cntrl ascii ";
    if (kNames.find(" " + name + " ") == std::string_view::npos) Refuse("[:" + name + ":]");
    // In Rust they are those of ASCII.
    if (!is_oniguruma_) Refuse("[:" + name + ":]");
    AddTo(set, {{}, {}, name, is_complement});
  }

  // A character, a range or a set of one letter.
  void Member(Set& set) {
    const auto next = [&]() -> Escaped {
      if (!Take("\\")) return {TakeCharacter(), {}, {}};
      if (Take("b")) return {'\b', {}, {}};
      return EscapedSet();
    };
    const Escaped first = next();
    if (!first.character) return AddTo(set, first);
    set.inside.append(Literal(*first.character));
    if (!Is("-") || Is("-]") || (!is_oniguruma_ && Is("--"))) return;
    ++at_;
    if (Is("[") || Is("&&") || at_ >= pattern_.size()) Refuse("a range without its end");
    const Escaped last = next();
    if (!last.character || *last.character < *first.character) Refuse("a range without its end");
    set.inside.append("-").append(Literal(*last.character));
  }

  void BeginGroup() {
    const Group outer = {flags_, out_.size()};
    if (Take("?#")) {
      const size_t end = pattern_.find(')', at_);
      if (!is_oniguruma_ || end == std::string_view::npos) Refuse("a comment");
      at_ = end + 1;
      return;
    }
    for (const std::string_view kind : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (Take(kind)) {
        out_.append("(").append(kind);
        outer_.push_back(outer);
        return;
      }
    }
    if (Is("?<") || Is("?P<")) {
      const size_t end = pattern_.find('>', at_);
      if (end == std::string_view::npos) Refuse("a name without its end");
      at_ = end + 1;
    } else if (Take("?")) {
      return BeginFlags(outer);
    } else if (Is("*")) {
      Refuse("(*");
    }
    out_.append("(?:");
    outer_.push_back(outer);
  }

  void BeginFlags(const Group& outer) {
    bool is_on = true;
    for (; at_ < pattern_.size() && pattern_[at_] != ':' && pattern_[at_] != ')'; ++at_) {
      const char flag = pattern_[at_];
      if (flag == '-') {
        is_on = false;
      } else if (flag == 'i') {
        flags_.ignores_case = is_on;
      } else if (flag == 'm') {
        (is_oniguruma_ ? flags_.dot_is_any : flags_.is_multi_line) = is_on;
      } else if (flag == 's' && !is_oniguruma_) {
        flags_.dot_is_any = is_on;
      } else {
        Refuse(std::string("(?").append(1, flag));
      }
    }
    const char* begin = flags_.ignores_case ? "(?i" : "(?-i";
    if (Take(":")) {
      out_.append(begin).append(":");
      outer_.push_back(outer);
    } else if (Take(")")) {
      // To Oniguruma, alternatives behind it belong to it; at the beginning that is the same.
      const size_t group = outer_.empty() ? 0 : outer_.back().begin;
      const std::string_view before = std::string_view(out_).substr(group);
      if (is_oniguruma_ && before.find_first_not_of("(?:=!<>i-") != std::string_view::npos) {
        Refuse("flags that begin inside a group");
      }
      out_.append(begin).append(")");
    } else {
      Refuse("flags without their end");
    }
  }

  void Interval() {
    const size_t begin = at_++;
    const auto number = [&] {
      std::string digits;
      while (at_ < pattern_.size() && IsDigit(pattern_[at_])) digits.push_back(pattern_[at_++]);
      if (digits.size() > 5) Refuse("such a large number of repetitions");
      return digits;
    };
    const std::string least = number();
    const bool has_comma = Take(",");
    const std::string most = has_comma ? number() : "";
    if (!Take("}") || (least.empty() && most.empty())) {
      if (!is_oniguruma_) Refuse("{ that begins no repetition");
      at_ = begin + 1;
      out_.append("\\{");
      return;
    }
    if (least.empty() && !is_oniguruma_) Refuse("{,");
    if (!most.empty() && !least.empty() && std::stoi(least) > std::stoi(most))
      Refuse("{n,m} with n > m");
    if (is_oniguruma_ && (Is("+") || (!has_comma && Is("?")))) {
      Refuse("a repetition of a repetition");
    }
    out_.append("{").append(least.empty() ? "0" : least);
    if (has_comma) out_.append(",").append(most);
    out_.append("}");
  }

  std::string_view parameter_;
  std::string_view pattern_;
  bool is_oniguruma_;
  size_t at_ = 0;
  std::string out_;
  Flags flags_;
  std::vector<Group> outer_;
  char last_letter_ = '\0';  // that stands right in front, while case is ignored
};

}  // namespace

std::string ToPcre(std::string_view parameter, std::string_view pattern, RegexDialect dialect) {
  return Translator(parameter, pattern, dialect).Run();
}

}  // namespace sluice::text
