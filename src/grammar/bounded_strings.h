// The rules of JSON strings with a maxLength, written so that masks are quick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::grammar {

// Longer ones stay as the grammar engine has them: each character of the longest string is a rule,
// for which masks are made when a grammar is compiled.
inline constexpr int64_t kLongestChain = 512;
inline constexpr std::string_view kChainName = "sluice_text_";  // their rules' names begin so

// `rules`: what the grammar engine writes for JSON schemas. Their strings of a bounded length count
// characters, and near the end of one each token is tried that may be too long. Here a string has a
// rule for each number of characters that are left, which all strings of the grammar share: so a
// token is too long for the rule itself, which is known from the compilation on. The texts that
// match stay the same, but for control characters, which JSON does not have in strings and the
// engine's rule lets through.
//
// A string for which the rules would grow beyond `most_bytes` stays as it is: strings with as many
// different lowest lengths share nothing. Returns whether anything was changed.
enum class AfterString : uint8_t { kJson, kAnything };  // what may follow; kJson: or nothing
bool RewriteBoundedStrings(AfterString after, size_t most_bytes, std::string& rules);

}  // namespace sluice::grammar
