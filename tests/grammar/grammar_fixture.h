// The grammar engine for tests, and a small vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.hpp"
#include "sluice/grammar.hpp"

namespace sluice::test {

inline std::string GrammarFolder() { return SLUICE_ROOT "/build/python-venv"; }

// The engine that scripts/setup.sh installs; empty where it did not.
inline std::optional<GrammarLibrary> TestLibrary() {
  try {
    return GrammarLibrary::Load(GrammarFolder());
  } catch (const Error&) {
    return std::nullopt;
  }
}

#define SLUICE_NEEDS_GRAMMAR(library)                 \
  const auto library = ::sluice::test::TestLibrary(); \
  if (!library) GTEST_SKIP() << "xgrammar is not in build/python-venv"

inline constexpr int32_t kStop = 0;

// A stop token, printable ASCII, parts of characters, and tokens of several bytes.
inline std::vector<std::string> SmallVocabulary() {
  std::vector<std::string> tokens = {""};
  for (char c = ' '; c < 127; ++c) tokens.emplace_back(1, c);
  for (const char* token : {"\n", "\xC3", "\xA9", "ab", "aa", "abc", "{\"", "\":", "\",\"", "true",
                            "12", "]}", "b\"", "\"a", "name"}) {
    tokens.emplace_back(token);
  }
  return tokens;
}

inline std::vector<std::string_view> Views(const std::vector<std::string>& tokens) {
  return {tokens.begin(), tokens.end()};
}

struct SmallCompiler {
  explicit SmallCompiler(const GrammarLibrary& library, const GrammarLimits& limits = {})
      : tokens(SmallVocabulary()),
        compiler(library, Views(tokens), std::vector<int32_t>{kStop},
                 static_cast<int32_t>(tokens.size()), limits) {}
  int32_t vocab() const { return static_cast<int32_t>(tokens.size()); }

  std::vector<std::string> tokens;
  GrammarCompiler compiler;
};

inline std::vector<int32_t> MaskOf(GrammarMatcher& matcher, int32_t vocab) {
  std::vector<int32_t> words(static_cast<size_t>(vocab + 31) / 32);
  matcher.FillMask(words);
  return words;
}

inline bool Allows(const std::vector<int32_t>& words, int32_t token) {
  return static_cast<uint32_t>(words[static_cast<size_t>(token) / 32]) >> (token % 32) & 1;
}

// The sentence of the Error that a call throws; empty if it throws none.
template <typename F>
std::string SentenceOf(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace sluice::test
