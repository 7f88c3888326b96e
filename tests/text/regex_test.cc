// Patterns mean what they mean to Hugging Face tokenizers (tests/fixtures/make_regexes.py) or are
// refused, and take no more time than so much a byte.
#include "text/regex/regex.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <set>
#include <string>
#include <vector>

#include "sluice/error.hpp"
#include "tests/text/timing.h"
#include "text/regex/regex_patterns.h"

namespace sluice::test {
namespace {

using text::Regex;
using text::RegexDialect;
using text::Span;

std::vector<std::string> Pieces(const Regex& regex, std::string_view text) {
  std::vector<std::string> pieces;
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) pieces.emplace_back(text.substr(begin, end - begin));
  };
  Regex::Matches matches(regex, text);
  for (Span match; matches.Next(&match); done = match.end) {
    add(done, match.begin);
    add(match.begin, match.end);
  }
  add(done, text.size());
  return pieces;
}

bool Compiles(std::string_view pattern, RegexDialect dialect = RegexDialect::kOniguruma) {
  try {
    const Regex regex("pattern", pattern, dialect);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Regex, CutsAsHuggingFace) {
  simdjson::dom::parser parser;
  const simdjson::dom::element rows = parser.load(std::string(SLUICE_FIXTURES) + "/regexes.json");
  const std::set<std::string_view> refused = {};
  for (const auto row : rows.get_array()) {
    const std::string_view pattern = row.at(0);
    const simdjson::dom::element cases = row.at(1);
    if (cases.is_null() || refused.count(pattern) > 0) {
      EXPECT_FALSE(Compiles(pattern)) << pattern;
      continue;
    }
    try {
      const Regex regex("pattern", pattern);
      for (const auto text_case : cases.get_array()) {
        const std::string_view text = text_case.at(0);
        std::vector<std::string> expected;
        for (const auto piece : text_case.at(1).get_array()) {
          expected.emplace_back(std::string_view(piece));
        }
        EXPECT_EQ(Pieces(regex, text), expected) << pattern << " " << text_case;
      }
    } catch (const Error& error) {
      ADD_FAILURE() << pattern << " " << error.what();
    }
  }
}

TEST(Regex, RefusesWhatHasNoExactTranslation) {
  for (const char* pattern :
       {"a(?i)b|c", "(?i:ss)", "(?i:Fi)", "(?i:é)",    "(?i:[é])",    "(?i:\\w)", "(?x: a)",
        "(?s:.)",   "\\1",     "\\k<a>",  "\\g<a>",    "\\X",         "\\G",      "\\y",
        "a{2}?",    "a{1,2}+", "a{3,2}",  "[a&&]",     "[]",          "[a",       "[\\d-z",
        "(",        ")",       "\\",      "\\p{",      "\\p{Punct}",  "\\pL",     "[[:punct:]]",
        "(?~a)",    "(?@a)",   "(*FAIL)", "\\x{D800}", "\\x{110000}", "[z-a]",    "*"}) {
    EXPECT_FALSE(Compiles(pattern)) << pattern;
  }
  EXPECT_FALSE(Compiles(std::string(40, '[') + "a" + std::string(40, ']')));
}

TEST(Regex, RustHasItsOwnDialect) {
  const auto cut = [](std::string_view pattern, std::string_view text) {
    return Pieces(Regex("pattern", pattern, RegexDialect::kRust), text);
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(cut("a$", "a\na"), (List{"a\n", "a"}));
  EXPECT_EQ(cut("(?m)a$", "a\na"), (List{"a", "\n", "a"}));
  EXPECT_EQ(cut("^a", "a\na"), (List{"a", "\na"}));
  EXPECT_EQ(cut("(?s:.+)", "a\na"), (List{"a\na"}));
  EXPECT_EQ(cut("\\w+", "a\u200Db c"), (List{"a\u200Db", " ", "c"}));
  EXPECT_EQ(cut("[\\p{L}&&[^\\p{Han}]]+", "ab中"), (List{"ab", "中"}));
  EXPECT_EQ(cut("\\pL+", "ab1"), (List{"ab", "1"}));
  for (const char* pattern : {"[a--b]", "a{", "[[:alpha:]]", "\\Z", "(?x)a", "\\R"}) {
    EXPECT_FALSE(Compiles(pattern, RegexDialect::kRust)) << pattern;
  }
}

// Each of these goes over the rest of the text from every place, or worse.
TEST(Regex, TakesSoManyStepsAByte) {
  // What the patterns want is at the end, so that no look for it ends them early.
  const std::string spaces = std::string(200'000, ' ') + "yxcb";
  const std::string letters = std::string(200'000, 'a') + "yxcb";
  for (const char* pattern :
       {" +x", "\\s+$x", "(?: +)+x", "(?= *x)", "(?<!x) +\\z ", "a*b", "(a|a)*b", "(a+)+b",
        "(?:a?){30}b", "a*a*a*a*b", "[a[b]]*c", "(?:[a-c&&[^b]])*b"}) {
    const Regex regex("pattern", pattern);
    for (const std::string* text : {&spaces, &letters}) {
      EXPECT_TRUE(EndsWithin(20.0, [&] {
        try {
          Pieces(regex, *text);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kExhausted) << error.what();
        }
      })) << pattern;
    }
  }
  EXPECT_THROW(Pieces(Regex("pattern", " +x"), spaces), Error);
  EXPECT_THROW(Pieces(Regex("pattern", "(a+)+b"), letters), Error);
}

// Those whose steps are not counted, on runs of every kind of character.
TEST(Regex, WellKnownPatternsAreLinear) {
  for (const std::string_view pattern : text::kLinearPatterns) {
    const Regex regex("pattern", pattern, RegexDialect::kRust);
    for (const std::string_view unit :
         {" ",      "a",  "A",  "1",   "!", "\n",     "\r\n", " \n",
          "'",      "'s", "é",  "中",  "ǅ", "\u0301", "aA",   "A\u0301",
          "\u02B0", "a!", " !", "!\n", "/", "\u00A0", "\t ",  "'S'"}) {
      std::string text;
      while (text.size() < 250'000 / kSlowdown) text.append(unit);
      EXPECT_TRUE(EndsWithin(10.0, [&] { Pieces(regex, text); })) << pattern << " " << unit;
      text.append("x");
      EXPECT_TRUE(EndsWithin(10.0, [&] { Pieces(regex, text); })) << pattern << " " << unit;
    }
  }
}

}  // namespace
}  // namespace sluice::test
