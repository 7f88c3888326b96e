// Patterns of tokenizer files, translated to PCRE2's language: what they mean there is spelled out,
// and what has no translation is refused by name.
//
//   Oniguruma   tokenizer.json (Split, Replace). ^ and $ are those of lines, \h is a hexadecimal
//               digit, (?m) lets the dot match a newline, {n}? is a repetition that may be missing
//   Rust        the regex and fancy-regex crates: tiktoken's patterns, and \w of Whitespace
//
// In both, [a&&b] is an intersection, classes stand in classes, \p{Greek} is the script and not its
// extensions, \s is White_Space, \w Unicode's word characters, \d its decimal digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

enum class RegexDialect : uint8_t { kOniguruma, kRust };

// Throws Error naming `parameter`. Groups capture nothing in the result.
std::string ToPcre(std::string_view parameter, std::string_view pattern, RegexDialect dialect);

}  // namespace sluice::text
