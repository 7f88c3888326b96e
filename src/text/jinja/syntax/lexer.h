// A template's text to tokens, with the rules for white space around its tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,        // text between tags
    kBeginPrint,  // {{
    kEndPrint,
    kBeginBlock,  // {%
    kEndBlock,
    kName,
    kString,
    kInteger,
    kReal,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  int32_t line;
};

// Throws Error naming `template` and the line.
std::vector<Token> Tokenize(std::string_view source);

[[noreturn]] void ThrowAt(int32_t line, std::string_view what, std::string_view allowed);

}  // namespace sluice::text::jinja
