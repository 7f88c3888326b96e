// Strings of a bounded length: their masks, and what their rules take.
#include "grammar/bounded_strings.h"

#include <algorithm>
#include <random>

#include "tests/grammar/grammar_fixture.h"

namespace sluice {
namespace {

using namespace test;

TEST(BoundedStrings, ShareARuleForEachNumberOfCharactersLeft) {
  std::string rules =
      R"(root ::= ((a b))
a ::= (("\"" a_characters{1, 3} "\""))
a_characters ::= (([^\"\\\r\n]))
b ::= (("\"" b_characters{0, 2} "\""))
b_characters ::= (([^\"\\\r\n]))
c ::= (("\"" c_characters{0, 600} "\""))
c_characters ::= (([^\"\\\r\n]))
d ::= (("\"" d_characters{2, -1} "\""))
)";
  ASSERT_TRUE(grammar::RewriteBoundedStrings(grammar::AfterString::kJson, 10'000, rules));
  const std::string after = R"( (=([ \n\r\t,}\]:])))";
  const std::string character = R"([^\0-\x1f\"\\])";
  EXPECT_EQ(rules,
            "root ::= ((a b))\n"
            R"(a ::= (("\"" sluice_text_1_3)))"
            "\n"
            R"(b ::= (("\"" sluice_text_0_2)))"
            "\n"
            R"(c ::= (("\"" c_characters{0, 600} "\"")))"
            "\n"
            "c_characters ::= ((" +
                character +
                "))\n"
                R"(d ::= (("\"" d_characters{2, -1} "\"")))"
                "\n"
                R"(sluice_text_0_0 ::= (("\"")))" +
                after +
                "\n"
                R"(sluice_text_0_1 ::= (("\"") | ()" +
                character + " sluice_text_0_0))" + after +
                "\n"
                R"(sluice_text_0_2 ::= (("\"") | ()" +
                character + " sluice_text_0_1))" + after +
                "\n"
                "sluice_text_1_3 ::= ((" +
                character + " sluice_text_0_2))" + after + "\n");
  std::string others = "root ::= ((\"a\"))\n";
  EXPECT_FALSE(grammar::RewriteBoundedStrings(grammar::AfterString::kAnything, 10'000, others));
  EXPECT_EQ(others, "root ::= ((\"a\"))\n");
}

// A string for each lowest length shares nothing with the others: 200 of them would be 80 000
// rules.
std::string StringsThatShareNothing(int strings) {
  std::string rules = "root ::= ((\"a\"))\n";
  for (int i = 0; i < strings; ++i) {
    const std::string name = "root_prop_" + std::to_string(i);
    rules += name + R"( ::= (("\"" )" + name + "_characters{" + std::to_string(i) +
             R"(, 400} "\"")))" + "\n" + name + R"(_characters ::= (([^\"\\\r\n])))" + "\n";
  }
  return rules;
}

TEST(BoundedStrings, StayAsTheyAreWhereTheirRulesWouldBeTooLarge) {
  const std::string before = StringsThatShareNothing(200);
  for (const size_t room : {size_t{0}, size_t{50'000}, size_t{100'000}, size_t{200'000}}) {
    // The rule of a character is written anew for each string that stays: 3 bytes.
    const size_t most = before.size() + room + 200 * 3;
    std::string rules = before;
    ASSERT_TRUE(
        grammar::RewriteBoundedStrings(grammar::AfterString::kJson, before.size() + room, rules));
    EXPECT_LE(rules.size(), most);
    EXPECT_EQ(rules.find("sluice_text") != std::string::npos, room > 0);
    EXPECT_NE(rules.find("root_prop_199_characters{199, 400}"), std::string::npos);
  }
}

// Whatever the masks come from, a token is in one where the text may go on with it.
void ExpectTheMasksOfTexts(const SmallCompiler& small, const Grammar& grammar,
                           const std::string& text) {
  std::mt19937 random(5);
  for (int walk = 0; walk < 6; ++walk) {
    GrammarMatcher matcher(grammar);
    for (int step = 0; step < 40 && !matcher.IsTerminated(); ++step) {
      const std::vector<int32_t> mask = MaskOf(matcher, small.vocab());
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < small.vocab(); ++id) {
        const bool may_come = matcher.Fork().Accept(id);
        const bool is_set =
            (static_cast<uint32_t>(mask[static_cast<size_t>(id) / 32]) >> (id % 32) & 1) != 0;
        ASSERT_EQ(is_set, may_come) << text << ", token " << id << " of step " << step;
        if (may_come) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty());
      ASSERT_TRUE(matcher.Accept(allowed[random() % allowed.size()]));
    }
  }
}

constexpr const char* kSchemasWithStrings[] = {
    R"({"type":"string","minLength":1,"maxLength":4})",
    R"({"type":"string","maxLength":1})",
    R"({"type":"string","minLength":3,"maxLength":3})",
    R"({"type":"string","maxLength":0})",
    R"({"type":"string","minLength":2})",
    R"({"type":"string","maxLength":600})",
    R"({"type":"array","maxItems":3,"items":{"type":"string","maxLength":2}})",
    R"({"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":5},
        "b":{"type":"string","maxLength":3}},"required":["a","b"]})",
    R"({"type":"object","additionalProperties":{"type":"string","maxLength":2},
        "propertyNames":{"type":"string","maxLength":3},"maxProperties":2})",
    R"({"anyOf":[{"type":"string","maxLength":2},{"type":"null"}]})",
};

TEST(BoundedStrings, HaveTheMasksOfTheTextsThatMatch) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  for (const char* const schema : kSchemasWithStrings) {
    for (const int32_t whitespace : {0, 1}) {
      const Grammar grammar =
          small.compiler.Compile(GrammarKind::kJsonSchema, schema, {.max_whitespace = whitespace});
      ExpectTheMasksOfTexts(small, grammar, schema);
    }
  }
}

// Calls of tools are such grammars. Any text may follow their JSON.
TEST(BoundedStrings, HaveTheMasksOfTheTextsThatMatchWithinTags) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  for (const char* const schema : kSchemasWithStrings) {
    const std::string tag =
        std::string(R"({"type":"tag","begin":"a","content":{"type":"json_schema","json_schema":)")
            .append(schema)
            .append(R"(},"end":"abc"})");
    for (
        const std::string& format :
        {tag,
         R"({"type":"triggered_tags","triggers":["a"],"at_least_one":false,"stop_after_first":false,)"
         R"("tags":[)" +
             tag + "]}",
         R"({"type":"tags_with_separator","separator":"b","at_least_one":true,)"
         R"("stop_after_first":false,"tags":[)" +
             tag + "]}"}) {
      const std::string text = R"({"type":"structural_tag","format":)" + format + "}";
      ExpectTheMasksOfTexts(small, small.compiler.Compile(GrammarKind::kStructuralTag, text), text);
    }
  }
}

// Of exactly these lengths, with characters of several bytes and with none that JSON escapes.
TEST(BoundedStrings, TakeTextsOfTheirLengthsAlone) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const auto matches = [&](const Grammar& grammar, const std::string& text) {
    GrammarMatcher matcher(grammar);
    for (const char byte : text) {
      const std::string token(1, byte);
      const auto found = std::ranges::find(small.tokens, token);
      if (found == small.tokens.end()) return false;
      if (!matcher.Accept(static_cast<int32_t>(found - small.tokens.begin()))) return false;
    }
    return matcher.IsComplete();
  };
  for (const int64_t most :
       {int64_t{1}, int64_t{20}, grammar::kLongestChain, grammar::kLongestChain + 1}) {
    const Grammar grammar = small.compiler.Compile(
        GrammarKind::kJsonSchema,
        R"({"type":"string","minLength":1,"maxLength":)" + std::to_string(most) + "}");
    for (const int64_t length : {int64_t{0}, int64_t{1}, most, most + 1}) {
      const auto text = "\"" + std::string(static_cast<size_t>(length), 'x') + "\"";
      EXPECT_EQ(matches(grammar, text), length >= 1 && length <= most) << length << " of " << most;
    }
    EXPECT_TRUE(matches(grammar, "\"\xC3\xA9\""));
    EXPECT_FALSE(matches(grammar, "\"\n\""));
    EXPECT_FALSE(matches(grammar, "\"\\n\""));
  }
}

TEST(BoundedStrings, WithinTagsTakeNoControlCharacters) {
  SLUICE_NEEDS_GRAMMAR(library);
  const std::vector<std::string_view> tokens = {"", "\"", "\t", "a"};
  GrammarCompiler compiler(*library, tokens, std::vector<int32_t>{0}, 4);
  GrammarMatcher matcher(
      compiler.Compile(GrammarKind::kStructuralTag,
                       R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":)"
                       R"({"type":"string","maxLength":3}}})"));
  ASSERT_TRUE(matcher.Accept(1));
  EXPECT_FALSE(matcher.Accept(2));
  EXPECT_TRUE(matcher.Accept(3));
}

// Its own rules are what they say, whatever their names are.
TEST(BoundedStrings, AreNotTheRulesOfAGrammarInATag) {
  SLUICE_NEEDS_GRAMMAR(library);
  const std::vector<std::string_view> tokens = {"", "\"", "\t", "a"};
  GrammarCompiler compiler(*library, tokens, std::vector<int32_t>{0}, 4);
  const std::string rules =
      R"(root ::= (\"\\\"\" root_characters{1, 20} \"\\\"\")\nroot_characters ::= [^\\\"\\\\\\r\\n])";
  for (const char* const more : {"", R"(,{"type":"json_schema","json_schema":{"type":"null"}})"}) {
    GrammarMatcher matcher(compiler.Compile(
        GrammarKind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"sequence",)"
                                     R"("elements":[{"type":"grammar","grammar":")" +
                                         rules + "\"}" + more + "]}}"));
    ASSERT_TRUE(matcher.Accept(1));
    EXPECT_TRUE(matcher.Accept(2)) << "a tab, which the grammar allows and JSON does not";
    EXPECT_TRUE(matcher.Accept(3));
  }
}

// A grammar with many of them takes hardly more than one with the longest.
TEST(BoundedStrings, TakeTheMemoryOfTheLongest) {
  SLUICE_NEEDS_GRAMMAR(library);
  SmallCompiler small(*library);
  const auto bytes = [&](int fields) {
    std::string schema = R"({"type":"object","properties":{)";
    for (int i = 0; i < fields; ++i) {
      schema += (i == 0 ? "\"f" : ",\"f") + std::to_string(i) +
                R"(":{"type":"string","maxLength":)" + std::to_string(200 - i) + "}";
    }
    return small.compiler.Compile(GrammarKind::kJsonSchema, schema + "}}").bytes();
  };
  EXPECT_LT(bytes(8), 2 * bytes(1));
}

}  // namespace
}  // namespace sluice
