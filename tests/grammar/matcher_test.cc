// Masks against brute force: a token is allowed exactly if the text with it begins a text of the
// language.
#include <functional>
#include <random>
#include <set>

#include "tests/grammar/grammar_fixture.h"

namespace sluice {
namespace {

using namespace test;

// All texts of a finite language.
using Language = std::set<std::string>;

bool IsPrefix(const Language& language, const std::string& text) {
  const auto at = language.lower_bound(text);
  return at != language.end() && at->starts_with(text);
}

// Walks at random through every place of the language, and compares every bit there.
void ExpectLanguage(SmallCompiler& small, const Grammar& grammar, const Language& language) {
  std::mt19937 random(7);
  int compared = 0;
  for (int walk = 0; walk < 40; ++walk) {
    GrammarMatcher matcher(grammar);
    std::string text;
    while (true) {
      const auto words = MaskOf(matcher, small.vocab());
      std::vector<int32_t> allowed;
      for (int32_t token = 1; token < small.vocab(); ++token) {
        const std::string& bytes = small.tokens[static_cast<size_t>(token)];
        const bool fits = IsPrefix(language, text + bytes);
        ASSERT_EQ(Allows(words, token), fits) << '"' << text << "\" then \"" << bytes << '"';
        ++compared;
        if (fits) {
          allowed.push_back(token);
        } else {
          ASSERT_FALSE(matcher.Fork().Accept(token)) << text << bytes;
        }
      }
      const bool is_whole = language.contains(text);
      ASSERT_EQ(Allows(words, kStop), is_whole) << text;
      ASSERT_EQ(matcher.IsComplete(), is_whole) << text;
      if (allowed.empty()) break;
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.Accept(token));
      text += small.tokens[static_cast<size_t>(token)];
    }
    ASSERT_TRUE(language.contains(text)) << text;
    ASSERT_TRUE(matcher.Accept(kStop));
    ASSERT_TRUE(matcher.IsTerminated());
    ASSERT_FALSE(matcher.Accept(kStop));
  }
  EXPECT_GT(compared, 1000);
}

Language Objects() {
  Language language;
  for (const char* a : {"true", "false", "null"}) {
    for (const char* b : {"", ",\"name\":\"ab\"", ",\"name\":\"b\""}) {
      language.insert(std::string("{\"a\":").append(a).append(b).append("}"));
    }
  }
  return language;
}

TEST(GrammarMask, OfARegex) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  Language language;
  for (const char* a : {"", "a", "aa", "aaa"}) {
    for (const char* b : {"b\"", "c", "\xC3\xA9"}) language.insert(std::string(a).append(b));
  }
  ExpectLanguage(small, small.compiler.Compile(GrammarKind::kRegex, "a{0,3}(b\"|c|\xC3\xA9)"),
                 language);
}

TEST(GrammarMask, OfAJsonSchema) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const std::string schema =
      R"({"type":"object","properties":{"a":{"enum":[true,false,null]},
          "name":{"enum":["ab","b"]}},"required":["a"]})";
  ExpectLanguage(small,
                 small.compiler.Compile(GrammarKind::kJsonSchema, schema, {.max_whitespace = 0}),
                 Objects());
}

TEST(GrammarMask, OfRulesAndChoices) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const Language language = {"abc12", "abctrue", "ab\"12", "ab\"true"};
  ExpectLanguage(small,
                 small.compiler.Compile(GrammarKind::kEbnf,
                                        "root ::= \"ab\" end (\"12\" | \"true\")\n"
                                        "end ::= \"c\" | \"\\\"\""),
                 language);
  ExpectLanguage(small,
                 small.compiler.Compile(GrammarKind::kLark,
                                        "start: \"ab\" end (\"12\" | \"true\")\n"
                                        "end: \"c\" | \"\\\"\""),
                 language);
  const std::vector<std::string> choices = {"a\"b", "back\\slash", "line\nend", "\xC3\xA9", "abc"};
  ExpectLanguage(small, small.compiler.Compile(GrammarKind::kEbnf, ChoiceGrammar(choices)),
                 Language(choices.begin(), choices.end()));
}

TEST(GrammarMask, OfAStructuralTag) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"tag","begin":"<f>","end":"</f>",
          "content":{"type":"json_schema","json_schema":{"enum":["ab",12]}}}})";
  ExpectLanguage(small, small.compiler.Compile(GrammarKind::kStructuralTag, tag),
                 {"<f>\"ab\"</f>", "<f>12</f>"});
}

TEST(GrammarMask, OfAnyObject) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const Grammar grammar = small.compiler.Compile(GrammarKind::kJsonObject, "");
  GrammarMatcher matcher(grammar);
  for (const char c : std::string(R"({ "x" : [ 1 , { "y" : null } ] , "" : -1.5e3 })")) {
    const int32_t token = c - ' ' + 1;
    ASSERT_TRUE(Allows(MaskOf(matcher, small.vocab()), token)) << c;
    ASSERT_TRUE(matcher.Accept(token)) << c;
  }
  EXPECT_TRUE(matcher.IsComplete());
  EXPECT_FALSE(
      Allows(MaskOf(*std::make_unique<GrammarMatcher>(grammar), small.vocab()), '[' - ' ' + 1));
}

TEST(GrammarMatcherTest, RollbackAndForkEqualReplay) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const Grammar grammar = small.compiler.Compile(GrammarKind::kJsonObject, "");
  std::mt19937 random(3);
  GrammarMatcher matcher(grammar);
  std::vector<int32_t> tokens;
  for (int step = 0; step < 600; ++step) {
    const auto replayed = [&] {
      GrammarMatcher fresh(grammar);
      for (const int32_t token : tokens) EXPECT_TRUE(fresh.Accept(token));
      return fresh;
    };
    if (random() % 4 == 0 && !tokens.empty()) {
      const size_t back = random() % tokens.size() + 1;
      GrammarMatcher fork = matcher.Fork();
      fork.Rollback(static_cast<int64_t>(back));
      matcher.Rollback(static_cast<int64_t>(back));
      tokens.resize(tokens.size() - back);
      GrammarMatcher fresh = replayed();
      ASSERT_EQ(MaskOf(matcher, small.vocab()), MaskOf(fresh, small.vocab()));
      ASSERT_EQ(MaskOf(fork, small.vocab()), MaskOf(fresh, small.vocab()));
      ASSERT_EQ(matcher.accepted(), static_cast<int64_t>(tokens.size()));
      continue;
    }
    const auto words = MaskOf(matcher, small.vocab());
    std::vector<int32_t> allowed;
    for (int32_t token = 1; token < small.vocab(); ++token) {
      if (Allows(words, token)) allowed.push_back(token);
    }
    if (allowed.empty()) continue;
    tokens.push_back(allowed[random() % allowed.size()]);
    GrammarMatcher before = matcher.Fork();
    ASSERT_TRUE(matcher.Accept(tokens.back()));
    ASSERT_EQ(MaskOf(before, small.vocab()), words) << "a fork moved with its origin";
  }
  EXPECT_NE(SentenceOf([&] { matcher.Rollback(matcher.accepted() + 1); }), "");
}

TEST(GrammarMatcherTest, StopTokenIsTakenBack) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  GrammarMatcher matcher(small.compiler.Compile(GrammarKind::kRegex, "b?"));
  ASSERT_TRUE(matcher.Accept(kStop));
  EXPECT_TRUE(matcher.IsTerminated());
  EXPECT_NE(SentenceOf([&] { MaskOf(matcher, small.vocab()); }), "");
  EXPECT_EQ(matcher.JumpForward(), "");
  matcher.Rollback(1);
  EXPECT_FALSE(matcher.IsTerminated());
  EXPECT_TRUE(matcher.Accept('b' - ' ' + 1));
}

TEST(GrammarMatcherTest, JumpForwardIsWhatMustCome) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  GrammarMatcher matcher(small.compiler.Compile(GrammarKind::kRegex, "abc(d|e)"));
  EXPECT_EQ(matcher.JumpForward(), "abc");
  ASSERT_TRUE(matcher.Accept('a' - ' ' + 1));
  EXPECT_EQ(matcher.JumpForward(), "bc");
}

TEST(GrammarMatcherTest, RefusesWhatDoesNotFit) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  GrammarMatcher matcher(small.compiler.Compile(GrammarKind::kRegex, ".*"));
  std::vector<int32_t> words(1);
  EXPECT_NE(SentenceOf([&] { matcher.FillMask(words); }).find("words"), std::string::npos);
  EXPECT_FALSE(matcher.Accept(-1));
  EXPECT_FALSE(matcher.Accept(small.vocab()));
  GrammarMatcher moved = std::move(matcher);
  EXPECT_NE(SentenceOf([&] { matcher.Accept(1); }), "");
  EXPECT_TRUE(moved.Accept(1));
}

// Padding of the logits has no tokens, so it is never allowed, not even where everything is.
// Bytes alone, and a stop token.
TEST(GrammarMask, LetsNoTextBeginThatIsNotUtf8) {
  SLUICE_NEEDS_GRAMMAR(library);
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("");
  GrammarCompiler compiler(*library, Views(tokens), std::vector<int32_t>{256}, 257);
  const std::vector<std::pair<GrammarKind, std::string>> grammars = {
      {GrammarKind::kJsonSchema, R"({"type": "string"})"},
      {GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 3})"},
      {GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 1000})"},
      {GrammarKind::kRegex, R"("(.|[^a]|[\x20-\uffff])*")"},
      {GrammarKind::kEbnf, R"(root ::= "\"" [^a]* "\"")"},
      {GrammarKind::kLark, "start: \"\\\"\" TEXT\nTEXT: /[^a]+/\n"},
  };
  for (const auto& [kind, text] : grammars) {
    SCOPED_TRACE(std::string(Name(kind)) + " " + text);
    GrammarMatcher matcher(compiler.Compile(kind, text));
    ASSERT_TRUE(matcher.Accept('"'));
    for (int first = 0x80; first < 256; ++first) {
      const auto range = [&]() -> std::pair<int, int> {  // of the second byte, as Unicode has it
        if (first == 0xe0) return {0xa0, 0xbf};
        if (first == 0xed) return {0x80, 0x9f};
        if (first == 0xf0) return {0x90, 0xbf};
        if (first == 0xf4) return {0x80, 0x8f};
        return {0x80, 0xbf};
      }();
      const bool may_begin = first >= 0xc2 && first <= 0xf4;
      ASSERT_EQ(matcher.Accept(first), may_begin) << first;
      if (!may_begin) continue;
      for (int second = 0; second < 256; ++second) {
        const bool may_come = second >= range.first && second <= range.second;
        ASSERT_EQ(matcher.Accept(second), may_come) << first << " " << second;
        if (may_come) matcher.Rollback(1);
      }
      matcher.Rollback(1);
    }
  }
}

TEST(GrammarMask, LeavesOutPadding) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto tokens = SmallVocabulary();
  constexpr int32_t kVocab = 300;
  GrammarCompiler compiler(*library, Views(tokens), std::vector<int32_t>{kStop}, kVocab);
  GrammarMatcher matcher(compiler.Compile(GrammarKind::kRegex, "(.|\n)*"));
  const auto words = MaskOf(matcher, kVocab);
  EXPECT_TRUE(Allows(words, 5));
  for (auto t = static_cast<int32_t>(tokens.size()); t < kVocab; ++t)
    EXPECT_FALSE(Allows(words, t));
}

}  // namespace
}  // namespace sluice
