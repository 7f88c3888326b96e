// Outputs in every format and in every cut, and what is held back of them.
#include <gtest/gtest.h>

#include "tests/support/random.h"
#include "tests/support/slowdown.h"
#include "tests/text/output_cases.h"

namespace sluice::test {
namespace {

// cuts: where pieces begin, in ascending order.
std::string Parse(const OutputCase& of, const std::vector<size_t>& cuts) {
  const std::vector<Tool> tools = CaseTools();
  OutputParser parser(of.format, tools);
  OutputParts parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser.Step(std::string_view(of.text).substr(begin, cut - begin), parts);
    EXPECT_LE(parser.held_bytes(), 2 * kMostHeldBytes);
    begin = cut;
  }
  parser.Step(std::string_view(of.text).substr(begin), parts);
  parser.Finish(parts);
  EXPECT_EQ(parser.held_bytes(), 0u);
  return Shown(parts);
}

TEST(OutputParser, TakesEachFormatApart) {
  for (const OutputCase& of : AllOutputCases()) EXPECT_EQ(Parse(of, {}), of.shown) << of.text;
}

TEST(OutputParser, GivesTheSameForEveryCutIntoTwoAndThree) {
  int64_t cuts = 0;
  for (const OutputCase& of : AllOutputCases()) {
    for (size_t i = 1; i < of.text.size(); ++i) {
      ASSERT_EQ(Parse(of, {i}), of.shown) << of.text << " at " << i;
      if (of.text.size() > 300) continue;
      for (size_t j = i + 1; j < of.text.size(); ++j, ++cuts) {
        if (!IsTried(static_cast<int>(cuts))) continue;
        ASSERT_EQ(Parse(of, {i, j}), of.shown) << of.text << " at " << i << " and " << j;
      }
    }
  }
  EXPECT_GT(cuts, 50'000);
}

TEST(OutputParser, GivesTheSameForEveryByteAloneAndForRandomCuts) {
  Random random(11);
  for (const OutputCase& of : AllOutputCases()) {
    for (const double probability : {1.0, 0.5, 0.2, 0.05}) {
      std::vector<size_t> cuts;
      for (size_t i = 1; i < of.text.size(); ++i) {
        if (random.Coin(probability)) cuts.push_back(i);
      }
      ASSERT_EQ(Parse(of, cuts), of.shown) << of.text;
    }
  }
}

// Texts of pieces of markup in random order: their parts are equal for every cut, and without
// a call every byte is content.
TEST(OutputParser, GivesTheSameForRandomMarkup) {
  Random random(12);
  const std::vector<OutputCase> cases = AllOutputCases();
  int64_t plain = 0;
  int64_t with_calls = 0;
  for (int round = 0; round < 8000; ++round) {
    OutputCase of = random.Pick(cases);
    of.text.clear();
    for (int64_t piece = random.Between(1, 5); piece > 0; --piece) {
      const OutputCase& other = random.Pick(cases);
      const auto size = static_cast<int64_t>(other.text.size());
      const int64_t begin = random.Below(size);
      of.text += other.text.substr(static_cast<size_t>(random.Coin() ? 0 : begin),
                                   static_cast<size_t>(random.Between(1, 80)));
    }
    of.shown = Parse(of, {});
    std::vector<size_t> cuts;
    for (size_t i = 1; i < of.text.size(); ++i) {
      if (random.Coin(0.3)) cuts.push_back(i);
    }
    ASSERT_EQ(Parse(of, cuts), of.shown) << of.text;
    const bool has_calls = of.shown.find("call 0 ") != std::string::npos;
    with_calls += has_calls;
    const bool is_lossless =
        of.format.reasoning == ReasoningFormat::kNone && of.format.tools != ToolFormat::kHarmony &&
        of.format.tools != ToolFormat::kFunctionary;  // its markers need not be calls
    if (has_calls || !is_lossless) continue;
    ++plain;
    ASSERT_EQ(of.shown, "content " + of.text + "|");
  }
  EXPECT_GT(plain, 1000);
  EXPECT_GT(with_calls, 300);
}

TEST(OutputParser, HoldsBackOnlyWhatMayBecomeMarkup) {
  OutputParser parser({.tools = ToolFormat::kHermes});
  OutputParts parts;
  const auto held = [&](std::string_view text) {
    parser.Step(text, parts);
    return parser.held_bytes();
  };
  EXPECT_EQ(held("Is a <"), 1u);
  EXPECT_EQ(held(" b? "), 0u);
  EXPECT_EQ(held("<tool_call"), 10u);
  EXPECT_EQ(held("s>"), 0u);
  EXPECT_EQ(held("<tool_call>\n{"), 13u);
  EXPECT_EQ(held("}"), 0u);
  EXPECT_EQ(held("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"<tool_call>"), 0u);
  EXPECT_EQ(Shown(parts),
            "content Is a < b? <tool_calls><tool_call>\n{}|call 0 f|"
            "arguments 0 {\"a\":\"<tool_call>|");
}

TEST(OutputParser, HoldsNoPartOfACharacterBack) {
  OutputParser parser({.tools = ToolFormat::kDeepSeek});
  OutputParts parts;
  parser.Step("<", parts);
  EXPECT_TRUE(parts.IsEmpty());
  parser.Step("！", parts);  // its first byte is that of the bar in a marker
  EXPECT_EQ(Shown(parts), "content <！|");
}

TEST(OutputParser, HasAnExample) {
  std::string answer;
  std::string arguments;
  // [output_parser]
  OutputParser parser({.reasoning = ReasoningFormat::kDeepSeek, .tools = ToolFormat::kHermes});
  OutputParts parts;
  for (const char* const piece :
       {"<think>Oslo.</th", "ink>I look. <tool_c",
        "all>{\"name\": \"weather\", \"arguments\": ", "{\"city\": ", "\"Oslo\"}}</tool_call>"}) {
    parser.Step(piece, parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].kind == PartKind::kContent) answer += parts[i].text;
      if (parts[i].kind == PartKind::kArguments) arguments += parts[i].text;
    }
    parts.Clear();
  }
  parser.Finish(parts);
  // [output_parser]
  EXPECT_EQ(answer, "I look. ");
  EXPECT_EQ(arguments, "{\"city\": \"Oslo\"}");
  EXPECT_TRUE(parts.IsEmpty());
}

TEST(OutputParser, OfOneOfSeveralChoicesSharesTheToolsOfTheOthers) {
  const auto tools = std::make_shared<const std::vector<Tool>>(
      std::vector<Tool>{{.name = "f", .parameters = R"({"properties":{"a":{"type":"integer"}}})"}});
  const OutputParser unused({.tools = ToolFormat::kHermes}, tools);
  EXPECT_EQ(tools.use_count(), 1);
  OutputParser first({.tools = ToolFormat::kXml}, tools);
  OutputParser second({.tools = ToolFormat::kXml}, tools);
  EXPECT_EQ(tools.use_count(), 3);
  OutputParts parts;
  second.Step("<function=f><parameter=a>1</parameter></function>", parts);
  std::string arguments;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].kind == PartKind::kArguments) arguments += parts[i].text;
  }
  EXPECT_EQ(arguments, R"({"a": 1})");
}

}  // namespace
}  // namespace sluice::test
