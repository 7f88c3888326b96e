#include "cli/vllm/vllm_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <span>

#include "cli/usage_error.h"
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

struct Refused {
  std::string_view flag;
  std::string_view instead;
};

constexpr std::string_view kTls = "--tls-cert and --tls-key have a certificate and its key";
constexpr std::string_view kOwn = "sluice vllm gives the engine this flag itself";
constexpr std::string_view kRequests = "Sluice has no such default: requests say it";
constexpr std::string_view kRanks =
    "start an engine for each rank yourself, and sluice serve with an --engine for each";
constexpr Refused kRefused[] = {
    {"--headless", kOwn},
    {"--data-parallel-rpc-port", kOwn},
    {"--data-parallel-address", kOwn},
    {"--data-parallel-rank", kRanks},
    {"--data-parallel-external-lb", kRanks},
    {"--data-parallel-hybrid-lb", kRanks},
    {"--data-parallel-size", kRanks},
    {"--data-parallel-size-local", kRanks},
    {"-dp", kRanks},
    {"-dpn", kRanks},
    {"-dpr", kRanks},
    {"-dpl", kRanks},
    {"-dpa", kOwn},
    {"-dpp", kOwn},
    {"-dpe", kRanks},
    {"-dph", kRanks},
    {"--config", "write its flags here: some are the server's, which does not read the file"},
    {"--lora-modules", "Sluice serves no adapters"},
    {"--uds", "--unix-socket takes the path"},
    {"--ssl-keyfile", kTls},
    {"--ssl-certfile", kTls},
    {"--ssl-ca-certs", kTls},
    {"--ssl-cert-reqs", kTls},
    {"--root-path", "let the proxy remove the path"},
    {"--middleware", "Sluice loads no Python"},
    {"--tool-parser-plugin", "Sluice loads no Python: --tool-format names a form that it reads"},
    {"--reasoning-parser-plugin",
     "Sluice loads no Python: --reasoning-format names a form that it reads"},
    {"--tool-server", "Sluice calls no tools itself"},
    {"--grpc-port", "Sluice speaks HTTP alone"},
    {"--tokens-only", "Sluice has no server of tokens alone"},
    {"--tokenizer", "the folder of the model has the tokenizer"},
    {"--override-generation-config", kRequests},
    {"--default-chat-template-kwargs", kRequests},
    {"--return-tokens-as-token-ids", kRequests},
    {"--enable-force-include-usage", "requests say it, with stream_options"},
    {"--response-role", "answers have the role assistant"}};

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

const Refused* FindRefused(std::string_view flag) {
  const auto found = std::ranges::find(kRefused, flag, &Refused::flag);
  return found == std::end(kRefused) ? nullptr : &*found;
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
  for (const Refused& refused : kRefused) check(refused.flag);
}

}  // namespace

std::string ToolFormatOfParser(const std::string& parser) {
  return FormatOf("--tool-call-parser", "--tool-format", parser, kToolParsers, ToolFormatNames());
}

std::string ReasoningFormatOfParser(const std::string& parser) {
  return FormatOf("--reasoning-parser", "--reasoning-format", parser, kReasoningParsers,
                  ReasoningFormatNames());
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

std::vector<std::string> EngineWords(const CLI::App& command,
                                     const std::vector<std::string>& left) {
  for (const std::string& word : left) {
    if (!word.starts_with('-')) continue;
    std::string flag = word.substr(0, word.find_first_of("=."));  // vLLM's --flag.key=value
    std::ranges::replace(flag, '_', '-');
    if (const Refused* const refused = FindRefused(flag)) {
      throw UsageError(flag + " is not taken: " + std::string(refused->instead));
    }
    RefuseBeginning(command, flag);
    // Most of all a key that would require none.
    if (command.get_option_no_throw(flag) != nullptr) {
      throw UsageError(word.substr(0, word.find('=')) + " is written " + flag + " here");
    }
  }
  return left;
}

}  // namespace sluice::cli
