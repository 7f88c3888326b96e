// Stop strings: nothing of one gets out, nothing else stays in, however the text is cut.
#include "sluice/stop.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/detokenizer.hpp"
#include "sluice/error.hpp"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

using Texts = std::vector<std::string>;

std::shared_ptr<const StopList> Stops(const Texts& stops) {
  return std::make_shared<const StopList>(stops);
}

// Of tokens that are whole.
std::vector<TokenEnd> Ends(const std::vector<size_t>& sizes) {
  std::vector<TokenEnd> ends;
  for (const size_t size : sizes) ends.push_back({.text = size});
  return ends;
}

struct Scan {
  Texts deltas;  // not empty; the last may be Finish's
  std::string stop;
  int64_t tokens = 0;
};

// Each token in a step of its own.
Scan ScanOf(const Texts& tokens, const Texts& stops, const StopOptions& options = {}) {
  StopScanner scanner(Stops(stops), options);
  Scan scan;
  StopResult result;
  for (const std::string& token : tokens) {
    std::string out;
    result = scanner.Step(token, Ends({token.size()}), out);
    if (!out.empty()) scan.deltas.push_back(out);
    if (result.stop >= 0) break;
  }
  if (result.stop < 0) {
    std::string out;
    result = scanner.Finish("", out);
    if (!out.empty()) scan.deltas.push_back(out);
  }
  EXPECT_EQ(result.released_tokens, result.tokens);
  if (result.stop >= 0) scan.stop = stops[static_cast<size_t>(result.stop)];
  scan.tokens = result.tokens;
  return scan;
}

void ExpectScan(const Scan& scan, const Texts& deltas, const std::string& stop, int64_t tokens) {
  EXPECT_EQ(scan.deltas, deltas);
  EXPECT_EQ(scan.stop, stop);
  EXPECT_EQ(scan.tokens, tokens);
}

TEST(Stop, NothingOfAStopGetsOutAndNothingElseStaysIn) {
  ExpectScan(ScanOf({"He", "llo wor", "ld END. more"}, {"END"}), {"He", "llo wor", "ld "}, "END",
             3);
  ExpectScan(ScanOf({"foo E", "N", "D bar"}, {"END"}), {"foo "}, "END", 3);
  ExpectScan(ScanOf({"aa", "a", "b"}, {"aab"}), {"a"}, "aab", 3);
  ExpectScan(ScanOf({"foo E", "N"}, {"END"}), {"foo ", "EN"}, "", 2);
  ExpectScan(ScanOf({"\u505C", "\uFFFD", "x"}, {"停止"}), {"停\uFFFD", "x"}, "", 3);
  ExpectScan(ScanOf({"a", "\n", "\n", "b"}, {"\n\n"}), {"a"}, "\n\n", 3);
  ExpectScan(ScanOf({"xhello"}, {"x"}), {}, "x", 1);
  ExpectScan(ScanOf({"a", "\uFFFD", "b"}, {"\uFFFD"}), {"a"}, "\uFFFD", 2);
  ExpectScan(ScanOf({"DEF", "G", "HI", "J"}, {"DEFGHIJ"}), {}, "DEFGHIJ", 4);
  ExpectScan(ScanOf({"abcabcab", "cx"}, {"abcabcabd"}), {"abcabcabcx"}, "", 2);
}

// Of "abcd" and "c" the second ends first, in one token as in four.
TEST(Stop, EarliestEndThenLongest) {
  ExpectScan(ScanOf({"ab", "cd"}, {"abcd", "c"}), {"ab"}, "c", 2);
  ExpectScan(ScanOf({"abcd"}, {"abcd", "c"}), {"ab"}, "c", 1);
  ExpectScan(ScanOf({"xab"}, {"b", "ab"}), {"x"}, "ab", 1);
}

TEST(Stop, IncludeStopHoldsNothingBack) {
  ExpectScan(ScanOf({"foo END bar"}, {"END"}, {.include_stop = true}), {"foo END"}, "END", 1);
  ExpectScan(ScanOf({"E", "N", "D!"}, {"END"}, {.include_stop = true}), {"E", "N", "D"}, "END", 3);
}

TEST(Stop, MinTokensCountsTheTokenThatEndsTheStop) {
  ExpectScan(ScanOf({"a", "STOP", "b", "STOP", "c"}, {"STOP"}, {.min_tokens = 2}),
             {"a", "STOP", "b"}, "STOP", 4);
  ExpectScan(ScanOf({"a", "STOP", "c", "d"}, {"STOP"}, {.min_tokens = 2}), {"a", "STOP", "c", "d"},
             "", 4);
  ExpectScan(ScanOf({"a", "ST", "OP", "d"}, {"STOP"}, {.min_tokens = 2}), {"a"}, "STOP", 3);
  ExpectScan(ScanOf({"aa", "a"}, {"aa"}, {.min_tokens = 1}), {"a"}, "aa", 2);
}

TEST(Stop, TokensBehindTheStopAreNotCounted) {
  StopScanner scanner(Stops({"END"}));
  std::string out;
  const std::string text = "ab END junk junk2";
  const StopResult result = scanner.Step(text, Ends({1, 3, 6, 11, 17}), out);
  EXPECT_EQ(out, "ab ");
  EXPECT_EQ(result.tokens, 3);
  EXPECT_EQ(result.released_tokens, 3);
  scanner.Step("more", Ends({4}), out);
  scanner.Finish("more", out);
  EXPECT_EQ(out, "ab ");
}

TEST(Stop, TokensAreReleasedWithTheirLastByte) {
  StopScanner scanner(Stops({"END"}));
  std::string out;
  const auto step = [&](const std::string& text, const std::vector<size_t>& ends) {
    return scanner.Step(text, Ends(ends), out).released_tokens;
  };
  EXPECT_EQ(step("a", {1, 1}), 2);
  EXPECT_EQ(step("bE", {2}), 2);
  EXPECT_EQ(scanner.held_bytes(), 1u);
  EXPECT_EQ(step("", {0, 0}), 2);  // tokens without text go with the next
  EXPECT_EQ(step("NE", {1, 2}), 6);
  EXPECT_EQ(out, "abEN");
  EXPECT_EQ(step("N", {1}), 6);
  EXPECT_EQ(scanner.Finish("!", out).released_tokens, 8);
  EXPECT_EQ(out, "abENEN!");
}

// The character that a token begins is out with a later one.
TEST(Stop, TokensThatEndInsideACharacterAreReleasedWithIt) {
  StopScanner scanner(Stops({"éx"}));
  std::string out;
  const auto step = [&](const std::string& text, const std::vector<TokenEnd>& ends) {
    return scanner.Step(text, ends, out).released_tokens;
  };
  EXPECT_EQ(step("a", {{1, 1}}), 0);
  EXPECT_EQ(step("", {{0, 2}}), 0);           // without text, behind one that is not out
  EXPECT_EQ(step("é", {{2, 0}}), 0);          // may begin the stop
  EXPECT_EQ(step("é", {{0, 1}, {2, 1}}), 3);  // the last one begins one more
  EXPECT_EQ(out, "aé");
  EXPECT_EQ(step("b", {{1, 0}}), 6);
  EXPECT_EQ(step("", {{0, 1}}), 6);
  EXPECT_EQ(scanner.Finish("\uFFFD", out).released_tokens, 7);
}

TEST(Stop, RestOfTheLastCharacterMayEndAStop) {
  StopScanner scanner(Stops({"a\uFFFD"}));
  std::string out;
  scanner.Step("xa", Ends({1, 2, 2}), out);
  const StopResult result = scanner.Finish("\uFFFD", out);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(result.stop, 0);
  EXPECT_EQ(result.tokens, 3);
}

TEST(Stop, RestWithoutATokenBeforeMayBeAStop) {
  StopScanner scanner(Stops({"b"}));
  std::string out;
  const StopResult result = scanner.Finish("ab", out);
  EXPECT_EQ(result.stop, 0);
  EXPECT_EQ(result.tokens, 0);
  EXPECT_EQ(result.released_tokens, 0);
  EXPECT_EQ(out, "a");
}

TEST(Stop, RefusesWhatIsNoStop) {
  const auto error_of = [](const Texts& stops) -> std::string {
    try {
      const StopList list(stops);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(error_of(Texts(16, "x")), "");
  EXPECT_EQ(error_of(Texts(17, "x")), "stops.size() = 17 is not allowed: [0, 16]");
  EXPECT_EQ(error_of({"a", ""}), "stops[1].size() = 0 is not allowed: [1, 1024]");
  EXPECT_EQ(error_of({std::string(1025, 'x')}), "stops[0].size() = 1025 is not allowed: [1, 1024]");
  EXPECT_EQ(error_of(Texts(5, std::string(1000, 'x'))),
            "stops, in bytes together = 5000 is not allowed: [0, 4096]");
  EXPECT_EQ(error_of({"\xE4\xBD"}), "stops[0] = text that is not UTF-8 is not allowed: UTF-8");
}

// What a program says that wants no limits: what the automaton can number.
TEST(Stop, LimitsMayBeAnything) {
  const StopLimits none{SIZE_MAX, SIZE_MAX, SIZE_MAX};
  const StopList long_one(Texts{std::string(65534, 'x')}, none);
  EXPECT_EQ(long_one.longest(), 65534u);
  Texts many;
  for (int i = 0; i < 32767; ++i) {
    many.push_back(std::string(1, static_cast<char>('0' + i % 64)) +
                   static_cast<char>('0' + i / 64 % 64));
  }
  EXPECT_EQ(StopList(many, none).stops().size(), 32767u);
  EXPECT_THROW(StopList(Texts{std::string(65535, 'x')}, none), Error);
  EXPECT_THROW(StopList(Texts(2, std::string(40000, 'x')), none), Error);
  EXPECT_THROW(StopList(Texts(32768, "x"), none), Error);
  EXPECT_THROW(StopList(Texts{"x"}, {.max_bytes = 0}), Error);
}

TEST(Stop, RefusesEndsThatAreNotOfTheText) {
  StopScanner scanner(Stops({"x"}));
  std::string out;
  EXPECT_THROW(scanner.Step("ab", Ends({1}), out), Error);
  EXPECT_THROW(scanner.Step("ab", Ends({3}), out), Error);
  EXPECT_THROW(scanner.Step("ab", Ends({2, 1}), out), Error);
  EXPECT_THROW(scanner.Step("ab", {}, out), Error);
  EXPECT_THROW(scanner.Step("ab", std::vector<TokenEnd>{{2, 2}}, out), Error);
  EXPECT_EQ(out, "");
}

// The definition, naively: the first place where a stop ends, the longest of those.
struct Found {
  std::string text;
  int32_t stop = -1;
};
Found FindStop(const std::string& text, const std::vector<size_t>& ends, const Texts& stops,
               const StopOptions& options) {
  size_t token = 0;
  for (size_t end = 1; end <= text.size(); ++end) {
    while (ends[token] < end) ++token;
    if (static_cast<int64_t>(token) < options.min_tokens) continue;
    Found found;
    for (size_t s = 0; s < stops.size(); ++s) {
      const bool is_here = std::string_view(text).substr(0, end).ends_with(stops[s]);
      const bool is_longer =
          found.stop < 0 || stops[s].size() > stops[static_cast<size_t>(found.stop)].size();
      if (is_here && is_longer) found.stop = static_cast<int32_t>(s);
    }
    if (found.stop < 0) continue;
    const size_t size = stops[static_cast<size_t>(found.stop)].size();
    found.text = text.substr(0, options.include_stop ? end : end - size);
    return found;
  }
  return {text, -1};
}

// Few letters, so that stops overlap with themselves, each other and the text.
TEST(StopProperty, EveryCutOfATextGivesTheSame) {
  Random random(1);
  const Texts letters = {"a", "b", "é", "中", "\uFFFD"};
  const auto make = [&](int64_t most) {
    std::string text;
    for (int64_t i = random.Between(1, most); i > 0; --i) text += random.Pick(letters);
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    Texts stops;
    for (int64_t i = random.Between(1, 4); i > 0; --i) stops.push_back(make(5));
    const StopOptions options{random.Coin(0.3), random.Coin(0.3) ? random.Between(1, 4) : 0};
    // Tokens of bytes, not characters; a token's text is whole characters, so ends are at those.
    Texts tokens;
    std::string text;
    std::vector<size_t> ends;
    for (int64_t i = random.Between(1, 20); i > 0; --i) {
      tokens.push_back(random.Coin(0.2) ? "" : make(4));
      text += tokens.back();
      ends.push_back(text.size());
    }
    const Found expected = FindStop(text, ends, stops, options);
    const auto list = Stops(stops);
    for (int partition = 0; partition < 8; ++partition) {
      StopScanner scanner(list, options);
      std::string out;
      StopResult result;
      size_t at = 0;
      while (at < tokens.size() && result.stop < 0) {
        const size_t count =
            std::min(tokens.size() - at, static_cast<size_t>(random.Below(partition + 2)));
        std::string step;
        std::vector<size_t> step_ends;
        for (size_t i = 0; i < count; ++i) {
          step += tokens[at++];
          step_ends.push_back(step.size());
        }
        const std::string before = out;
        result = scanner.Step(step, Ends(step_ends), out);
        ASSERT_TRUE(out.starts_with(before));
        ASSERT_LE(result.released_tokens, result.tokens);
        if (result.stop >= 0) break;
        // What is held is the longest suffix that a stop may continue, to the byte.
        const std::string_view seen = std::string_view(text).substr(0, at == 0 ? 0 : ends[at - 1]);
        size_t held = 0;
        for (const std::string& stop : stops) {
          for (size_t size = 1; size < stop.size(); ++size) {
            if (seen.ends_with(std::string_view(stop).substr(0, size))) held = std::max(held, size);
          }
        }
        ASSERT_EQ(scanner.held_bytes(), options.include_stop ? 0 : held);
        ASSERT_EQ(out.size() + scanner.held_bytes(), seen.size());
      }
      if (result.stop < 0) result = scanner.Finish("", out);
      ASSERT_EQ(out, expected.text) << "round " << round;
      ASSERT_EQ(result.stop < 0 ? "" : stops[static_cast<size_t>(result.stop)],
                expected.stop < 0 ? "" : stops[static_cast<size_t>(expected.stop)]);
      ASSERT_EQ(result.released_tokens, result.tokens);
      if (expected.stop >= 0 && !options.include_stop && options.min_tokens == 0) {
        for (const std::string& stop : stops) ASSERT_EQ(out.find(stop), std::string::npos);
      }
    }
  }
}

TEST(Stop, LongStopsAndLongTextsTakeLinearTime) {
  const Texts stops = {std::string(31, 'a') + "b"};
  StopScanner scanner(Stops(stops));
  std::string out;
  const std::string text(1 << 20, 'a');
  scanner.Step(text, Ends({text.size()}), out);
  EXPECT_EQ(scanner.held_bytes(), 31u);
  scanner.Finish("", out);
  EXPECT_EQ(out, text);

  Texts many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(std::string(1023, 'x') + static_cast<char>('0' + i));
  }
  StopScanner wide(Stops(many));
  const std::string prefixes(4 << 20, 'x');
  out.clear();
  wide.Step(prefixes, Ends({prefixes.size()}), out);
  EXPECT_EQ(out.size(), prefixes.size() - 1023);
}

TEST(StopListCache, GivesTheSameListAndForgetsTheOldest) {
  StopListCache cache(2);
  const Texts a = {"a"};
  const Texts b = {"b"};
  const Texts c = {"c"};
  const auto first = cache.Get(a);
  EXPECT_EQ(cache.Get(a), first);
  const auto second = cache.Get(b);
  EXPECT_EQ(cache.Get(a), first);
  cache.Get(c);  // b goes
  EXPECT_EQ(cache.Get(a), first);
  EXPECT_NE(cache.Get(b), second);
  EXPECT_NE(cache.Get(Texts{"a", "b"}), cache.Get(Texts{"ab"}));
  EXPECT_THROW(cache.Get(a, {.max_stops = 0}), Error);
}

}  // namespace
}  // namespace sluice::test
