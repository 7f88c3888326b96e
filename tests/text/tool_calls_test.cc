// Formats by name and by chat template, the names of tools, and the text of grammars.
#include "sluice/tool_calls.hpp"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "sluice/error.hpp"
#include "sluice/reasoning.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ToolFormat, HasANameForEach) {
  for (const std::string_view name : ToolFormatNames())
    EXPECT_EQ(Name(ToolFormatByName(name)), name);
  EXPECT_EQ(ToolFormatNames().size(), static_cast<size_t>(ToolFormat::kXml) + 1);
  for (const std::string_view name : ReasoningFormatNames()) {
    EXPECT_EQ(Name(ReasoningFormatByName(name)), name);
  }
  EXPECT_EQ(ReasoningFormatNames().size(), static_cast<size_t>(ReasoningFormat::kHarmony) + 1);
  EXPECT_THROW(ToolFormatByName("hermess"), Error);
  EXPECT_THROW(ReasoningFormatByName(""), Error);
}

// Those that are not here have neither.
TEST(ToolFormat, IsDetectedInEachChatTemplate) {
  const std::map<std::string, ToolFormat> formats = {
      {"deepseek_outputs", ToolFormat::kDeepSeek}, {"functionary", ToolFormat::kFunctionary},
      {"gpt_oss", ToolFormat::kHarmony},           {"hermes", ToolFormat::kHermes},
      {"llama3", ToolFormat::kLlamaJson},          {"mistral_calls", ToolFormat::kMistral},
      {"qwen_calls", ToolFormat::kHermes}};
  const std::map<std::string, ReasoningFormat> reasoning = {
      {"deepseek_outputs", ReasoningFormat::kDeepSeek},
      {"deepseek_v31", ReasoningFormat::kDeepSeek},
      {"glm", ReasoningFormat::kDeepSeek},
      {"gpt_oss", ReasoningFormat::kHarmony},
      {"granite_thinking", ReasoningFormat::kDeepSeek},
      {"qwen_reasoning", ReasoningFormat::kDeepSeek},
      {"seed_budget", ReasoningFormat::kSeed},
      {"smol", ReasoningFormat::kDeepSeek}};
  size_t templates = 0;
  for (const auto& entry : fs::directory_iterator(SLUICE_FIXTURES "/chats/families")) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    const std::string source = ReadText(entry.path());
    const std::string name = entry.path().stem();
    const auto format = formats.find(name);
    EXPECT_EQ(Name(DetectToolFormat(source)),
              Name(format == formats.end() ? ToolFormat::kNone : format->second))
        << name;
    const auto thinks = reasoning.find(name);
    EXPECT_EQ(Name(DetectReasoningFormat(source)),
              Name(thinks == reasoning.end() ? ReasoningFormat::kNone : thinks->second))
        << name;
  }
  EXPECT_GT(templates, 50u);
}

TEST(ToolFormat, IsDetectedByMarkersThatNoTemplateHereHas) {
  const std::map<std::string_view, ToolFormat> formats = {
      {"'<tool_call>\\n<function=' ~ f ~ '>' '<parameter='", ToolFormat::kXml},
      {"<function=example>{{ args }}</function>", ToolFormat::kFunctionTag},
      {"<|tool_calls_section_begin|>", ToolFormat::kKimi},
      {"<|tool_call_start|>[", ToolFormat::kPythonic},
      {"<start_of_turn> {{ tools }}", ToolFormat::kGemma},
      {"<tool_call>{name}<arg_key></arg_key></tool_call>", ToolFormat::kNone}};
  for (const auto& [source, format] : formats) {
    EXPECT_EQ(Name(DetectToolFormat(source)), Name(format)) << source;
  }
}

TEST(ReasoningFormat, ReadsWhetherThePromptHasBegunIt) {
  EXPECT_TRUE(OpensReasoning(ReasoningFormat::kDeepSeek, "<|Assistant|><think>\n"));
  EXPECT_FALSE(OpensReasoning(ReasoningFormat::kDeepSeek, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(OpensReasoning(ReasoningFormat::kNone, "<think>"));
  EXPECT_FALSE(OpensReasoning(ReasoningFormat::kHarmony, "<|start|>assistant"));
}

std::string ErrorOf(std::vector<Tool> tools) {
  try {
    CheckTools(tools);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Tools, HaveNamesOfAFewCharacters) {
  EXPECT_EQ(ErrorOf({{.name = "get_weather-2"}, {.name = std::string(64, 'a')}}), "");
  EXPECT_EQ(ErrorOf({{.name = "f"}, {.name = "a.b"}}),
            "tools[1].name = \"a.b\" is not allowed: 1 to 64 letters, digits, _ and -");
  EXPECT_NE(ErrorOf({{.name = ""}}), "");
  EXPECT_NE(ErrorOf({{.name = std::string(65, 'a')}}), "");
  EXPECT_EQ(ErrorOf({{.name = "f"}, {.name = "f"}}),
            "tools[1].name = \"f\" is not allowed: a name that no tool before it has");
}

TEST(ToolGrammar, IsJsonForEachFormat) {
  const std::vector<Tool> tools = {{.name = "f"},
                                   {.name = "g", .parameters = R"({"type":"object"})"}};
  simdjson::dom::parser parser;
  for (const std::string_view name : ToolFormatNames()) {
    if (name == "none") continue;
    for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
      const std::string text = ToolGrammar(ToolFormatByName(name), tools,
                                           {.choice = choice, .reasoning_end = "</think>"});
      const bool is_free =
          choice == ToolChoice::kAuto &&
          (name == "llama_json" || name == "pythonic" || name == "gemma" || name == "functionary");
      EXPECT_EQ(text.empty(), is_free) << name;
      if (is_free) continue;
      simdjson::dom::element root;
      ASSERT_EQ(parser.parse(text).get(root), simdjson::SUCCESS) << text;
      EXPECT_EQ(std::string_view(root["type"]), "structural_tag");
    }
  }
  EXPECT_THROW(ToolGrammar(ToolFormat::kNone, tools), Error);
  EXPECT_THROW(ToolGrammar(ToolFormat::kHermes, {}), Error);
}

}  // namespace
}  // namespace sluice
