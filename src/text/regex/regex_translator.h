// One pattern's way to PCRE2's language (regex_dialect.h): its groups and repetitions in
// regex_dialect.cc, its sets of characters in regex_classes.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/check.h"
#include "text/normalize/utf8.h"
#include "text/regex/regex_dialect.h"

namespace sluice::text::regex {

// Insides of classes.
inline constexpr std::string_view kWords = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
inline constexpr std::string_view kJoiners = R"(\x{200C}\x{200D})";
// Words to Oniguruma outside of classes, where it goes by a table of Latin-1's own.
inline constexpr std::string_view kLatinNumbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsLetter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// A character that stands for itself.
std::string Literal(uint32_t c);

// A set of characters: what a class has inside, and expressions for one character each.
struct Set {
  std::string inside;
  std::vector<std::string> others;

  bool IsEmpty() const { return inside.empty() && others.empty(); }
  std::string Expression(bool is_complement) const;
};

// The item that a backslash begins in a class or outside: a character, or a set.
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

  std::string Run();

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

  void One();
  void Character(uint32_t c, char last);
  void Escape();
  void BeginGroup();
  void BeginFlags(const Group& outer);
  void Interval();

  // Sets of characters.

  // Oniguruma lets a class that ignores case match strings: "ss" where it has "ß".
  void CheckFolding() const;
  Escaped EscapedSet();
  uint32_t Braced();
  uint32_t Hexadecimal(size_t digits);
  Escaped Property(bool is_complement);
  // The content of a class for this property; empty when it is a script.
  std::string InsideOf(const std::string& property, bool is_in_class) const;
  void AddTo(Set& set, const Escaped& escaped, bool is_in_class = true) const;
  // After its bracket. An expression for one character.
  std::string Class(int depth);
  void CheckFoldingOfClass() const;
  void Posix(Set& set);
  // A character, a range or a set of one letter.
  void Member(Set& set);

  std::string_view parameter_;
  std::string_view pattern_;
  bool is_oniguruma_;
  size_t at_ = 0;
  std::string out_;
  Flags flags_;
  std::vector<Group> outer_;
  char last_letter_ = '\0';  // that stands right in front, while case is ignored
};

}  // namespace sluice::text::regex
