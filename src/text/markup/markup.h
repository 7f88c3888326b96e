// The markup of a format as a table: patterns of bytes, the states in which they are looked for,
// and what follows each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/output_parts.hpp"

namespace sluice::text {

// What a pattern may have in addition to bytes that stand for themselves.
inline constexpr char kSpace = '\x01';   // white space, or nothing; no white space follows it
inline constexpr char kName = '\x02';    // a tool's name, which the rule takes
inline constexpr char kWord = '\x03';    // letters, digits and -_.:
inline constexpr char kDigits = '\x04';  // one or more
inline constexpr char kObject = '\x05';  // the { of a JSON object, which is part of the arguments

enum class Arguments : uint8_t {
  kNoCall,    // the pattern is markup
  kEmpty,     // a call without arguments, which is complete
  kJson,      // a JSON object, from the { that the pattern ends with
  kPython,    // f(a=1, b='x') after the bracket
  kElements,  // <parameter=a>1</parameter> up to </function>
};

using StateNumber = uint8_t;

struct MarkupState {
  PartKind text = PartKind::kContent;  // what is no markup, is this and leads
  StateNumber otherwise = 0;           // here
  bool skips_space = false;            // white space here is markup
  bool drops_space = false;            // and at the end of the output
};

struct MarkupRule {
  StateNumber from;
  std::string pattern;  // of those that end at one place the first rule counts
  Arguments arguments;
  StateNumber to;
};

struct Markup {
  std::vector<MarkupState> states;
  std::vector<MarkupRule> rules;
  StateNumber first = 0;
  StateNumber broken = 0;  // after a call that cannot be read any further
  std::vector<std::string_view> markers;

  void Add(std::initializer_list<StateNumber> from, std::string_view pattern, Arguments arguments,
           StateNumber to) {
    for (const StateNumber state : from) {
      rules.push_back({state, std::string(pattern), arguments, to});
    }
  }
};

inline bool IsSpace(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}
inline bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }
inline bool IsLetter(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}
inline bool IsNameByte(char byte) {
  return IsLetter(byte) || IsDigit(byte) || byte == '-' || byte == '.';
}

}  // namespace sluice::text
