#include "text/regex/regex_dialect.h"

#include <array>
#include <utility>

#include "text/regex/regex_translator.h"

namespace sluice::text {
namespace regex {
namespace {

// What is the same as these, and a string of two letters of which Oniguruma ignores the case.
constexpr std::array<std::string_view, 5> kFoldTogether = {"ss", "st", "ff", "fi", "fl"};

}  // namespace

std::string Translator::Run() {
  while (at_ < pattern_.size()) One();
  if (!outer_.empty()) Refuse("a group without its end");
  return std::move(out_);
}

void Translator::One() {
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

void Translator::Character(uint32_t c, char last) {
  if (flags_.ignores_case && is_oniguruma_) {
    if (c >= 0x80) Refuse("characters beyond ASCII that ignore case");
    const char letter = static_cast<char>(c | 0x20);
    for (const std::string_view pair : kFoldTogether) {
      if (last == pair[0] && letter == pair[1]) {
        Refuse("\"" + std::string(pair) + "\" that ignores case");
      }
    }
    last_letter_ = letter;
  }
  out_.append(Literal(c));
}

void Translator::Escape() {
  if (at_ == pattern_.size()) Refuse("a backslash at its end");
  const std::string words = std::string(kWords).append(is_oniguruma_ ? kLatinNumbers : kJoiners);
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
    AddTo(set, escaped, !is_oniguruma_);
    out_.append(set.Expression(false));
  }
}

void Translator::BeginGroup() {
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

void Translator::BeginFlags(const Group& outer) {
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
    // To Oniguruma, the alternatives after it belong to it; at the beginning that changes nothing.
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

void Translator::Interval() {
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

}  // namespace regex

std::string ToPcre(std::string_view parameter, std::string_view pattern, RegexDialect dialect) {
  return regex::Translator(parameter, pattern, dialect).Run();
}

}  // namespace sluice::text
