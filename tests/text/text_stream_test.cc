// One request's text: how it ends, and what is out when. The cases are those where serving systems
// went wrong.
#include "sluice/text_stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/error.hpp"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

using Texts = std::vector<std::string>;

struct Streamed {
  Texts deltas;  // not empty; the last may be Finish's
  Delta end;
};

// A token is a string of bytes; the last of the vocabulary is the special token <|end|>.
constexpr const char* kEnd = "<|end|>";
struct Stream {
  Texts tokens;
  TextStreamOptions options;
  std::vector<TestToken> vocabulary;
  std::vector<int32_t> ids;

  Stream(const Texts& tokens_of, const Texts& stops, TextStreamOptions with = {})
      : tokens(tokens_of), options(std::move(with)) {
    options.stops = std::make_shared<const StopList>(stops);
    for (const std::string& token : tokens) {
      const auto same = std::find_if(vocabulary.begin(), vocabulary.end(),
                                     [&](const TestToken& t) { return t.text == token; });
      ids.push_back(static_cast<int32_t>(same - vocabulary.begin()));
      if (same == vocabulary.end()) {
        vocabulary.push_back(token == kEnd ? Special(token) : TestToken{token});
      }
    }
  }
  int32_t IdOf(const std::string& token) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == token) return ids[i];
    }
    return -1;
  }

  // Steps of so many tokens each, into a text with room for a token and into one without: there are
  // two ways.
  Streamed Run(size_t size = 1) const {
    const Streamed streamed = RunBehind("", size);
    const Streamed other = RunBehind("0123456789", size);
    EXPECT_EQ(streamed.deltas, other.deltas);
    EXPECT_EQ(streamed.end.finish, other.end.finish);
    EXPECT_EQ(streamed.end.tokens, other.end.tokens);
    return streamed;
  }
  Streamed RunBehind(const std::string& before, size_t size) const {
    TextStream stream(ByteLevelTokenizer(vocabulary), options);
    Streamed streamed;
    for (size_t at = 0; at < ids.size() && streamed.end.finish == FinishReason::kNone; at += size) {
      std::string text = before;
      const size_t count = std::min(size, ids.size() - at);
      streamed.end = stream.Step(std::span(ids).subspan(at, count), text);
      if (text != before) streamed.deltas.push_back(text.substr(before.size()));
    }
    std::string text;
    streamed.end = stream.Finish(text);
    if (!text.empty()) streamed.deltas.push_back(text);
    return streamed;
  }
};

void Expect(const Streamed& streamed, const Texts& deltas, FinishReason finish, int64_t tokens) {
  EXPECT_EQ(streamed.deltas, deltas);
  EXPECT_EQ(streamed.end.finish, finish);
  EXPECT_EQ(streamed.end.tokens, tokens);
  EXPECT_EQ(streamed.end.last_token, tokens);
}

TEST(TextStream, AStopStringCutsTheTextInFrontOfIt) {
  const Streamed streamed = Stream({"He", "llo wor", "ld END. more", "x"}, {"no", "END"}).Run();
  Expect(streamed, {"He", "llo wor", "ld "}, FinishReason::kStopString, 3);
  EXPECT_EQ(streamed.end.stop, 1);
  EXPECT_EQ(streamed.end.stop_token, -1);
  Expect(Stream({"foo END bar"}, {"END"}, {.stop = {.include_stop = true}}).Run(), {"foo END"},
         FinishReason::kStopString, 1);
}

TEST(TextStream, TokensBehindAStopInOneStepAreNotCounted) {
  for (const size_t size : {size_t{1}, size_t{2}, size_t{5}}) {
    const Streamed streamed = Stream({"a", "b E", "ND", "junk", "junk2"}, {"END"}).Run(size);
    std::string text;
    for (const std::string& delta : streamed.deltas) text += delta;
    EXPECT_EQ(text, "ab ");
    EXPECT_EQ(streamed.end.tokens, 3);
    EXPECT_EQ(streamed.end.last_token, 3);
  }
}

TEST(TextStream, CharactersAreReplacedBeforeStopsAreLookedFor) {
  Expect(Stream({"\xE5\x81\x9C", "\xE6\xAD", "x"}, {"停止"}).Run(), {"停\uFFFDx"},
         FinishReason::kEnd, 3);
  Expect(Stream({"a", "\xFF", "b"}, {"\uFFFD"}).Run(), {"a"}, FinishReason::kStopString, 2);
  // In what Finish gives as well.
  Expect(Stream({"xa", "\xE6\xAD"}, {"a\uFFFD"}).Run(), {"x"}, FinishReason::kStopString, 2);
  Expect(Stream({"xa", "\xE6\xAD"}, {"a\uFFFD"}, {.incomplete = Incomplete::kDrop}).Run(),
         {"x", "a"}, FinishReason::kEnd, 2);
}

// The end of a text by a token or a limit is not its end by the string that had begun.
TEST(TextStream, AnEndWithoutAStopStringLetsOutWhatWasHeldBack) {
  Expect(Stream({"foo E", "N"}, {"END"}).Run(), {"foo ", "EN"}, FinishReason::kEnd, 2);
  Stream stream({"foo E", "N", kEnd, "D"}, {"END"});
  stream.options.stop_token_ids = {stream.IdOf(kEnd)};
  for (const size_t size : {size_t{1}, size_t{4}}) {
    const Streamed streamed = stream.Run(size);
    std::string text;
    for (const std::string& delta : streamed.deltas) text += delta;
    EXPECT_EQ(text, "foo EN");
    EXPECT_EQ(streamed.end.finish, FinishReason::kStopToken);
    EXPECT_EQ(streamed.end.stop_token, stream.IdOf(kEnd));
    EXPECT_EQ(streamed.end.stop, -1);
    EXPECT_EQ(streamed.end.tokens, 3);
    EXPECT_EQ(streamed.end.last_token, 3);
  }
}

TEST(TextStream, AStopTokensTextIsShownWithIncludeStopAlone) {
  Stream stream({"a", "b", "c"}, {});
  stream.options.stop_token_ids = {stream.IdOf("b")};
  Expect(stream.Run(), {"a"}, FinishReason::kStopToken, 2);
  stream.options.stop.include_stop = true;
  Expect(stream.Run(), {"a", "b"}, FinishReason::kStopToken, 2);
  Expect(stream.Run(3), {"ab"}, FinishReason::kStopToken, 2);
  // A special token's is skipped all the same, unless special tokens are not.
  Stream special({"a", kEnd, "c"}, {});
  special.options.stop.include_stop = true;
  special.options.stop_token_ids = {special.IdOf(kEnd)};
  Expect(special.Run(), {"a"}, FinishReason::kStopToken, 2);
  special.options.detokenizer.skip_special_tokens = false;
  Expect(special.Run(), {"a", kEnd}, FinishReason::kStopToken, 2);
}

TEST(TextStream, AStopTokenThatEndsAStopStringIsAStopString) {
  Stream stream({"a", "b"}, {"ab"}, {.stop = {.include_stop = true}});
  stream.options.stop_token_ids = {stream.IdOf("b")};
  Expect(stream.Run(), {"a", "b"}, FinishReason::kStopString, 2);
  EXPECT_EQ(stream.Run().end.stop_token, -1);
}

TEST(TextStream, AStopStringThatIsASkippedTokensTextEndsTheStream) {
  Stream stream({"a", kEnd, "b"}, {kEnd});
  const Streamed streamed = stream.Run();
  Expect(streamed, {"a"}, FinishReason::kStopToken, 2);
  EXPECT_EQ(streamed.end.stop_token, stream.IdOf(kEnd));
}

TEST(TextStream, OneOfTheFirstMinTokensEndsNothing) {
  Stream stream({"a", kEnd, "b", kEnd, "c"}, {}, {.stop = {.min_tokens = 2}});
  stream.options.stop_token_ids = {stream.IdOf(kEnd)};
  for (const size_t size : {size_t{1}, size_t{2}, size_t{5}}) {
    EXPECT_EQ(stream.Run(size).end.tokens, 4);
    EXPECT_EQ(stream.Run(size).end.finish, FinishReason::kStopToken);
  }
  Expect(Stream({"a", "STOP", "b", "STOP", "c"}, {"STOP"}, {.stop = {.min_tokens = 2}}).Run(),
         {"a", "STOP", "b"}, FinishReason::kStopString, 4);
  // What Finish gives belongs to the last token.
  Expect(Stream({"xa", "\xE6\xAD"}, {"a\uFFFD"}, {.stop = {.min_tokens = 2}}).Run(),
         {"x", "a\uFFFD"}, FinishReason::kEnd, 2);
  Expect(Stream({"xa", "\xE6\xAD"}, {"a\uFFFD"}, {.stop = {.min_tokens = 1}}).Run(), {"x"},
         FinishReason::kStopString, 2);
}

TEST(TextStream, BehindItsEndNothingComesOut) {
  Stream stream({"a", "b", kEnd}, {"b"});
  stream.options.stop_token_ids = {stream.IdOf(kEnd)};
  const Tokenizer tokenizer = ByteLevelTokenizer(stream.vocabulary);
  const auto check = [&](std::vector<int32_t> ids, bool finishes, FinishReason reason) {
    TextStream text_stream(tokenizer, stream.options);
    std::string text;
    text.reserve(64);
    text_stream.Step(ids, text);
    if (finishes) text_stream.Finish(text);
    const std::string before = text;
    for (const int32_t id : {0, 1, 2}) {
      const Delta& delta = text_stream.Step({&id, 1}, text);
      EXPECT_EQ(delta.finish, reason);
      EXPECT_EQ(delta.first_token, delta.last_token);
      EXPECT_EQ(delta.tokens, static_cast<int64_t>(ids.size()));
    }
    EXPECT_EQ(text_stream.Finish(text).finish, reason);
    EXPECT_EQ(text, before);
  };
  check({0, 1}, false, FinishReason::kStopString);
  check({0, 2}, false, FinishReason::kStopToken);
  check({0}, true, FinishReason::kEnd);
}

// Each token is in one delta, the one that lets out the last byte of its text.
TEST(TextStream, TokensGoWithTheirText) {
  const Tokenizer tokenizer = ByteLevelTokenizer(
      {{"a "}, {" \xE4"}, {"\xBD"}, {"\xA0"}, {"E"}, {"N"}, {"!"}, Special(kEnd)});
  TextStream stream(tokenizer, {.stops = std::make_shared<const StopList>(Texts{"END"})});
  struct Case {
    int32_t id;
    std::string text;
    int64_t first, last;
  };
  const std::vector<Case> cases = {{0, "a ", 0, 1}, {1, " ", 1, 1},   {7, "", 1, 1}, {2, "", 1, 1},
                                   {3, "你", 1, 5}, {7, "", 5, 6},    {4, "", 6, 6}, {5, "", 6, 6},
                                   {7, "", 6, 6},   {6, "EN!", 6, 10}};
  for (const Case& expected : cases) {
    std::string text;
    const Delta& delta = stream.Step({&expected.id, 1}, text);
    EXPECT_EQ(text, expected.text);
    EXPECT_EQ(delta.first_token, expected.first);
    EXPECT_EQ(delta.last_token, expected.last);
  }
}

TEST(TextStream, TheTextOfAPromptIsNotRepeated) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"Hello"}, {"\xE4\xBD"}, {"\xA0"}});
  TextStream stream(tokenizer, {}, std::vector<int32_t>{0, 1});
  std::string text;
  const Delta& delta = stream.Step(std::vector<int32_t>{2}, text);
  EXPECT_EQ(text, "你");
  EXPECT_EQ(delta.last_token, 1);
}

TEST(TextStream, IdsWithoutATokenCountAndHaveNoText) {
  TextStream stream(ByteLevelTokenizer({{"a"}}));
  std::string text;
  EXPECT_EQ(stream.Step(std::vector<int32_t>{7, 0, -1}, text).last_token, 3);
  EXPECT_EQ(text, "a");
  EXPECT_EQ(stream.unknown_ids(), 2);
}

// Sixteen stops of which a text is always in the middle of one, and one that it never leaves.
TEST(TextStream, NothingOfAHostileTextIsLostAndLittleHeldBack) {
  Texts stops;
  for (int i = 0; i < 15; ++i) stops.push_back(std::string(16 + static_cast<size_t>(i), 'a') + "c");
  stops.push_back(std::string(31, 'a') + "b");
  Stream stream({"a", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, stops);
  TextStream text_stream(ByteLevelTokenizer(stream.vocabulary), stream.options);
  std::string text;
  size_t size = 0;
  for (int i = 0; size < 1 << 20; ++i) {
    const int32_t id = i % 3;
    text_stream.Step({&id, 1}, text);
    size += stream.tokens[static_cast<size_t>(id)].size();
    ASSERT_EQ(text_stream.held_bytes(), std::min<size_t>(size, 31));
    ASSERT_EQ(text.size() + text_stream.held_bytes(), size);
  }
  text_stream.Finish(text);
  EXPECT_EQ(text, std::string(size, 'a'));
}

TEST(TextStream, StopsOfManyFirstBytesAreFound) {
  Texts stops;
  for (int i = 0; i < 20; ++i) stops.push_back(std::string(1, static_cast<char>('a' + i)) + "!");
  const auto list = std::make_shared<const StopList>(stops, StopLimits{.max_stops = 20});
  const Tokenizer tokenizer = ByteLevelTokenizer({{"x"}, {"t"}, {"!"}, {"m!m"}});
  const auto text_of = [&](const std::vector<int32_t>& ids) {
    TextStream stream(tokenizer, {.stops = list});
    std::string text;
    text.reserve(64);
    for (const int32_t id : ids) stream.Step({&id, 1}, text);
    return text;
  };
  EXPECT_EQ(text_of({0, 1, 0, 2, 3}), "xtx!");
  EXPECT_EQ(text_of({0, 1, 2, 0}), "x");
}

}  // namespace
}  // namespace sluice::test
