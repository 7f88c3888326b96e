// Texts that match the grammar of a format's calls are read as these calls.
#include <map>
#include <random>

#include "sluice/reasoning.hpp"
#include "tests/grammar/grammar_fixture.h"

namespace sluice {
namespace {

using namespace test;

std::vector<Tool> Tools() {
  return {{.name = "f",
           .parameters = R"({"type":"object","properties":{"a":{"enum":["x","<y>"]},)"
                         R"("b":{"type":"boolean"}},"required":["a","b"]})"},
          {.name = "g"}};
}

// Every byte is a token.
struct ByteCompiler {
  explicit ByteCompiler(const GrammarLibrary& library)
      : tokens(Bytes()),
        compiler(library, Views(tokens), std::vector<int32_t>{kStop},
                 static_cast<int32_t>(tokens.size()), {}) {}

  static std::vector<std::string> Bytes() {
    std::vector<std::string> tokens = {""};
    for (int byte = 1; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return tokens;
  }

  std::vector<std::string> tokens;
  GrammarCompiler compiler;
};

// A text of the grammar, which ends as soon as it may where `size` is exceeded.
std::string Walk(const Grammar& grammar, std::mt19937& random, size_t size) {
  GrammarMatcher matcher(grammar);
  std::string text;
  while (text.size() < 4000) {
    const std::vector<int32_t> words = MaskOf(matcher, 256);
    if (Allows(words, kStop) && text.size() > size) return text;
    std::vector<int32_t> allowed;
    for (int32_t token = 1; token < 256; ++token) {
      if (Allows(words, token)) allowed.push_back(token);
    }
    if (allowed.empty()) return text;
    const int32_t token = allowed[random() % allowed.size()];
    EXPECT_TRUE(matcher.Accept(token));
    text.push_back(static_cast<char>(token));
  }
  return text;
}

std::string Forced(const Grammar& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  for (size_t i = 0; i < text.size(); ++i) {
    if (!matcher.Accept(static_cast<uint8_t>(text[i]))) return std::string(text.substr(i));
  }
  return matcher.IsComplete() ? "" : "incomplete";
}

TEST(ToolGrammar, MakesCallsThatTheParserReads) {
  SLUICE_NEEDS_GRAMMAR(library);
  ByteCompiler bytes(*library);
  std::mt19937 random(5);
  for (const std::string_view name : ToolFormatNames()) {
    if (name == "none") continue;
    const ToolFormat format = ToolFormatByName(name);
    const Grammar grammar = bytes.compiler.Compile(
        GrammarKind::kStructuralTag,
        ToolGrammar(format, Tools(), {.choice = ToolChoice::kRequired, .is_parallel = false}));
    std::map<std::string, int> names;
    for (int walk = 0; walk < 12; ++walk) {
      const std::string text = Walk(grammar, random, 0);
      OutputParser parser({.tools = format}, Tools());
      OutputParts parts;
      parser.Step(text, parts);
      parser.Finish(parts);
      ASSERT_EQ(parts.size(), 3u) << name << ": " << text;
      EXPECT_EQ(parts[0].kind, PartKind::kCallBegin) << name << ": " << text;
      EXPECT_EQ(parts[1].kind, PartKind::kArguments);
      EXPECT_EQ(parts[2].kind, PartKind::kCallEnd);
      ++names[std::string(parts[0].text)];
    }
    EXPECT_GT(names["f"], 0) << name;
    EXPECT_EQ(names["f"] + names["g"], 12) << name;
  }
}

TEST(ToolGrammar, TakesTextCallsAndReasoning) {
  SLUICE_NEEDS_GRAMMAR(library);
  ByteCompiler bytes(*library);
  const auto compile = [&](const ToolGrammarOptions& options) {
    return bytes.compiler.Compile(GrammarKind::kStructuralTag,
                                  ToolGrammar(ToolFormat::kHermes, Tools(), options));
  };
  const std::string f =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x\", \"b\": true}}\n</tool_call>";
  EXPECT_EQ(Forced(compile({}),
                   "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"c\": [1]}}\n"
                   "</tool_call>"),
            "");  // not strict
  const Grammar free = compile({});
  EXPECT_EQ(Forced(free, "Hi"), "");
  EXPECT_EQ(Forced(free, "Hi " + f), "");
  EXPECT_EQ(Forced(free, "Hi " + f + "\n" + f), "");
  EXPECT_NE(Forced(free, "<tool_call>\n{\"name\": \"h\""), "");
  const Grammar required = compile({.choice = ToolChoice::kRequired});
  EXPECT_EQ(Forced(required, f + "\n" + f), "");
  EXPECT_NE(Forced(required, "Hi"), "");
  const Grammar one = compile({.choice = ToolChoice::kRequired, .is_parallel = false});
  EXPECT_EQ(Forced(one, f), "");
  EXPECT_NE(Forced(one, f + "\n" + f), "");
  const Grammar reasons = compile({.choice = ToolChoice::kRequired, .reasoning_end = "</think>"});
  EXPECT_EQ(Forced(reasons, "Why?</think>" + f), "");
  EXPECT_NE(Forced(reasons, f), "");
}

// Unlike at OpenAI, properties need not all be required, and a schema need not have
// additionalProperties: false.
TEST(ToolGrammar, BindsAStrictToolToItsSchemaAndNoOther) {
  SLUICE_NEEDS_GRAMMAR(library);
  ByteCompiler bytes(*library);
  const std::string properties =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},)"
      R"("required":["a"])";
  const std::vector<Tool> tools = {
      {.name = "f", .parameters = properties + "}", .is_strict = true},
      {.name = "g", .parameters = properties + "}"},
      {.name = "h",
       .parameters = properties + R"(,"additionalProperties":{"type":"boolean"}})",
       .is_strict = true}};
  const Grammar grammar =
      bytes.compiler.Compile(GrammarKind::kStructuralTag, ToolGrammar(ToolFormat::kHermes, tools));
  const auto takes = [&](const std::string& tool, const std::string& arguments) {
    return Forced(grammar, "<tool_call>\n{\"name\": \"" + tool + "\", \"arguments\": " + arguments +
                               "}\n</tool_call>")
        .empty();
  };
  EXPECT_TRUE(takes("f", R"({"a": 1, "b": 2})"));
  EXPECT_TRUE(takes("f", R"({"a": 1})"));
  EXPECT_FALSE(takes("f", R"({"b": 2})"));
  EXPECT_FALSE(takes("f", R"({"a": "1"})"));
  EXPECT_FALSE(takes("f", R"({"a": 1, "c": true})"));
  EXPECT_TRUE(takes("g", R"({"a": "1", "c": {}})"));
  EXPECT_FALSE(takes("g", "1"));
  EXPECT_TRUE(takes("h", R"({"a": 1, "c": true})"));
  EXPECT_FALSE(takes("h", R"({"a": 1, "c": 1})"));
}

}  // namespace
}  // namespace sluice
