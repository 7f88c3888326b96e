#include "cli/vllm/vllm_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <span>

#include "cli/usage_error.h"
#include "cli/vllm/frontend_flags.h"
#include "sluice/reasoning.hpp"
#include "sluice/tool_calls.hpp"

namespace sluice::cli {
namespace {

struct Parser {
  std::string_view name;
  std::string_view format;
};

constexpr Parser kToolParsers[] = {
    {"qwen3_json", "hermes"},        {"llama3_json", "llama_json"}, {"llama4_json", "llama_json"},
    {"llama4_pythonic", "pythonic"}, {"lfm2", "pythonic"},          {"deepseek_v3", "deepseek"},
    {"deepseek_v31", "deepseek"},    {"kimi_k2", "kimi"},           {"openai", "harmony"},
    {"qwen3_coder", "xml"},          {"qwen3_xml", "xml"}};
constexpr Parser kReasoningParsers[] = {{"deepseek_r1", "deepseek"}, {"deepseek_v3", "deepseek"},
                                        {"qwen3", "deepseek"},       {"glm45", "deepseek"},
                                        {"granite", "deepseek"},     {"seed_oss", "seed"},
                                        {"openai_gptoss", "harmony"}};

// Where vLLM has no parser of the name, the one that reads the same form.
constexpr Parser kParsersOfFormats[] = {
    {"deepseek_r1", "deepseek"}, {"seed_oss", "seed"}, {"openai_gptoss", "harmony"}};

std::string Known(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

std::string FormatOf(std::string_view flag, std::string_view format_flag, const std::string& name,
                     std::span<const Parser> parsers, std::span<const std::string_view> formats) {
  if (std::ranges::find(formats, name) != formats.end()) return name;
  const auto found = std::ranges::find(parsers, name, &Parser::name);
  if (found != parsers.end()) return std::string(found->format);
  throw UsageError(std::string(flag) + " " + name +
                   ": Sluice does not read this form. Without the flag it takes that of the chat "
                   "template; " +
                   std::string(format_flag) + " names one of " + Known(formats));
}

// vLLM takes the beginning of a flag for it, so that a key or what is refused could go to the
// engine.
void RefuseBeginning(const CLI::App& command, std::string_view flag) {
  if (!flag.starts_with("--") || flag.size() < 4 ||
      command.get_option_no_throw(std::string(flag)) != nullptr) {
    return;
  }
  const auto check = [&](std::string_view whole) {
    if (!whole.starts_with(flag)) return;
    throw UsageError(std::string(flag) + " is not taken: write " + std::string(whole) +
                     " in full, where that is meant");
  };
  check("--api-key");
  for (const FrontendFlag& its : FrontendFlags()) {
    if (its.fate == FlagFate::kRefused) check(its.name);
  }
}

}  // namespace

std::string ToolFormatOfParser(const std::string& parser) {
  return FormatOf("--tool-call-parser", "--tool-format", parser, kToolParsers, ToolFormatNames());
}

std::string ReasoningFormatOfParser(const std::string& parser) {
  return FormatOf("--reasoning-parser", "--reasoning-format", parser, kReasoningParsers,
                  ReasoningFormatNames());
}

LoraAdapter AdapterOf(const std::string& text) {
  const size_t equals = text.find('=');
  if (text.starts_with('{') || equals == std::string::npos || equals == 0 ||
      equals + 1 == text.size()) {
    throw UsageError("--lora-modules " + text + ": write NAME=PATH");
  }
  return {.name = text.substr(0, equals), .path = text.substr(equals + 1)};
}

std::vector<std::string> OriginsOf(const std::string& text) {
  if (!text.starts_with('[')) return {text};
  std::vector<std::string> origins;
  size_t at = 0;
  while ((at = text.find('"', at)) != std::string::npos) {
    const size_t end = text.find('"', at + 1);
    if (end == std::string::npos) break;
    origins.push_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return origins;
}

std::string ReasoningParserOfEngine(const std::string& parser) {
  const auto found = std::ranges::find(kParsersOfFormats, parser, &Parser::format);
  if (found != std::end(kParsersOfFormats)) return std::string(found->name);
  return parser == "none" ? std::string() : parser;
}

EngineLine EngineWords(const CLI::App& command, const std::vector<std::string>& left) {
  EngineLine line;
  line.words = left;
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string& word = left[i];
    if (!word.starts_with('-')) continue;
    std::string flag = word.substr(0, word.find_first_of("=."));  // vLLM's --flag.key=value
    std::ranges::replace(flag, '_', '-');
    if (const FrontendFlag* const its = FindFrontendFlag(flag)) {
      const size_t end = word.find('=');
      const std::string value = end != std::string::npos ? word.substr(end + 1)
                                : i + 1 < left.size()    ? left[i + 1]
                                                         : std::string();
      if (!its->usual.empty() && value == its->usual) continue;
      if (its->fate == FlagFate::kRefused) {
        throw UsageError(flag + " is not taken: " + std::string(its->note));
      }
      if (its->fate == FlagFate::kNoEffect) {
        line.notes.push_back(flag + " has no effect: " + std::string(its->note));
      }
    }
    RefuseBeginning(command, flag);
    // Most of all a key that would require none.
    if (command.get_option_no_throw(flag) != nullptr) {
      throw UsageError(word.substr(0, word.find('=')) + " is written " + flag + " here");
    }
  }
  return line;
}

}  // namespace sluice::cli
