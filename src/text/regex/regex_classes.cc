#include <algorithm>

#include "text/regex/regex_translator.h"

namespace sluice::text::regex {
namespace {

// Insides of classes.
constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
constexpr std::string_view kAny = R"(\x{0}-\x{10FFFF})";

constexpr std::string_view kCategories =
    " l lu ll lt lm lo m mn mc me n nd nl no p pc pd ps pe pi pf po s sm sc sk so z zs zl zp c cc "
    "cf "
    "cs co cn ";

}  // namespace

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

std::string Set::Expression(bool is_complement) const {
  if (others.empty()) {
    return std::string(is_complement ? "[^" : "[").append(inside).append("]");
  }
  std::string made(is_complement ? "(?:(?!(?:" : "(?:");
  const size_t begin = made.size();
  if (!inside.empty()) made.append("[").append(inside).append("]");
  for (const std::string& other : others) made.append(made.size() > begin ? "|" : "").append(other);
  return made.append(is_complement ? "))(?s:.))" : ")");
}

// Oniguruma lets a class that ignores case match strings: "ss" where it has "ß".
void Translator::CheckFolding() const {
  if (flags_.ignores_case && is_oniguruma_) Refuse("classes that ignore case");
}

Escaped Translator::EscapedSet() {
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

uint32_t Translator::Braced() {
  const size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos || end - at_ < 2 || end - at_ > 9)
    Refuse("\\x{ without digits");
  ++at_;
  const uint32_t value = Hexadecimal(end - at_);
  ++at_;
  return value;
}

uint32_t Translator::Hexadecimal(size_t digits) {
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

Escaped Translator::Property(bool is_complement) {
  std::string name;
  if (Take("{")) {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) Refuse("\\p{ without its end");
    name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
  } else if (!is_oniguruma_ && at_ < pattern_.size()) {
    name.push_back(pattern_[at_++]);
  } else {
    Refuse("\\p without a name");
  }
  if (name.starts_with('^')) {
    is_complement = !is_complement;
    name.erase(0, 1);
  }
  return {{}, {}, name, is_complement};
}

// The content of a class for this property; empty when it is a script.
std::string Translator::InsideOf(const std::string& property, bool is_in_class) const {
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
  if (name == "word") return std::string(kWords).append(is_in_class ? "" : kLatinNumbers);
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

void Translator::AddTo(Set& set, const Escaped& escaped, bool is_in_class) const {
  const std::string inside = escaped.property.empty() ? std::string(escaped.inside)
                                                      : InsideOf(escaped.property, is_in_class);
  if (escaped.is_complement) {
    set.others.push_back(std::string("[^").append(inside).append("]"));
  } else {
    set.inside.append(inside);
  }
}

// After its bracket. An expression for one character.
std::string Translator::Class(int depth) {
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

void Translator::CheckFoldingOfClass() const {
  // One of letters of ASCII has no strings that are the same.
  if (!flags_.ignores_case || !is_oniguruma_) return;
  const std::string_view inside = pattern_.substr(at_, pattern_.find(']', at_) - at_);
  const auto is_plain = [](char c) {
    return c >= 0x20 && c < 0x7F && c != '[' && c != '\\' && c != '^';
  };
  if (!std::all_of(inside.begin(), inside.end(), is_plain)) CheckFolding();
}

void Translator::Posix(Set& set) {
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
void Translator::Member(Set& set) {
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

}  // namespace sluice::text::regex
