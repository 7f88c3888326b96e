#include "cli/flags/param_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <type_traits>

#include "cli/files/file.h"
#include "cli/flags/choices.h"
#include "cli/flags/param_text.h"
#include "cli/text.h"
#include "sluice/error.hpp"
#if SLUICE_HAS_JSON
#include "json/params_json.h"
#endif

namespace sluice::cli {
namespace {

template <typename T, size_t count>
std::string NamesOf(const T (&values)[count]) {
  std::vector<std::string> names;
  for (const T& value : values) names.push_back(ToText(value));
  return ChoiceType(names);
}

std::string ProfileNames() {
  std::vector<std::string> names;
  for (const NamedProfile& named : kProfiles) names.emplace_back(named.name);
  return ChoiceType(names);
}

// What a value looks like: "INT", "{gumbel,cdf}", "ID,...".
template <typename T>
std::string TypeOf() {
  if constexpr (std::is_same_v<T, float>) return "FLOAT";
  if constexpr (std::is_same_v<T, DrawMethod>) {
    return NamesOf({DrawMethod::kGumbel, DrawMethod::kCdf});
  }
  if constexpr (std::is_same_v<T, DraftMode>) {
    return NamesOf({DraftMode::kMatch, DraftMode::kReject});
  }
  if constexpr (std::is_same_v<T, LogprobMode>) {
    return NamesOf({LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                    LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits});
  }
  if constexpr (std::is_same_v<T, Profile>) return ProfileNames();
  if constexpr (std::is_same_v<T, TokenIds> || std::is_same_v<T, OptionalTokenIds>) return "ID,ID";
  if constexpr (std::is_same_v<T, TokenSequences>) return "ID:ID,ID";
  if constexpr (std::is_same_v<T, BiasEntries>) return "ID:BIAS,ID:BIAS";
  return "INT";
}

template <typename T>
void AddFlag(CLI::App& command, const char* name, const char* help, T& value) {
  command
      .add_option_function<std::string>(
          FlagName(name), [name, &value](const std::string& text) { FromText(name, text, value); },
          help)
      ->envname(EnvironmentName(name))
      ->default_str(ToText(value))
      ->type_name(TypeOf<T>())
      ->group("Sampling");
}

}  // namespace

void ReadParamsFile(const std::string& path, SamplingParams& params) {
#if SLUICE_HAS_JSON
  const std::string text = ReadTextFile("params", path);
  ParsedParams parsed;
  try {
    parsed = ParseParams(text, params);
  } catch (const Error& error) {
    RethrowOf(path, error);
  }
  params = parsed.params;
  if (parsed.unknown.empty()) return;
  std::cerr << "sluice: " << path << " has fields that are no parameters:";
  for (const std::string& name : parsed.unknown) std::cerr << ' ' << name;
  std::cerr << '\n';
#else
  static_cast<void>(params);
  throw Error(ErrorCode::kUnavailable, "params", Quoted(path), "a build with simdjson");
#endif
}

std::string FlagName(std::string_view name) {
  std::string flag = std::string("--").append(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string EnvironmentName(std::string_view name) {
  std::string variable = std::string("SLUICE_").append(name);
  std::transform(variable.begin(), variable.end(), variable.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return variable;
}

void AddParamFlags(CLI::App& command, SamplingParams& params) {
  // CLI11 runs what options do in the order in which they were added: the file comes first.
  command
      .add_option_function<std::string>(
          "--params", [&params](const std::string& path) { ReadParamsFile(path, params); },
          "a file with a JSON object of parameters; - is standard input; flags and variables "
          "override it")
      ->type_name("FILE")
      ->group("Sampling");
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  AddFlag(command, #name, help, params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  AddFlag(command, #name, help, params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  AddFlag(command, #name, help, params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  AddFlag(command, #name, help, params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) AddFlag(command, #name, help, params.name);
#include "sluice/params.def"
  // Other surfaces have another way to give none.
  command.get_option("--seed")->description(
      "the same seed gives the same tokens; without one, a random seed is chosen and reported");
}

void ShowParamDefaults(CLI::App& command, const SamplingParams& params) {
  const auto show = [&command](const char* name, const auto& value) {
    command.get_option(FlagName(name))->default_str(ToText(value));
  };
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) show(#name, params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) show(#name, params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) show(#name, params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) show(#name, params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) show(#name, params.name);
#include "sluice/params.def"
}

std::string FlagsOf(const SamplingParams& params, const SamplingParams& base) {
  const SamplingParams usual;
  std::string flags;
  auto add = [&flags](std::string_view name, const auto& value, const auto& base_value,
                      const auto& usual_value) {
    if (value == base_value && value == usual_value) return;
    const std::string text = ToText(value);
    flags += (flags.empty() ? "" : " ") + FlagName(name) + " " + (text.empty() ? "''" : text);
  };
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  add(#name, params.name, base.name, usual.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  add(#name, params.name, base.name, usual.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  add(#name, params.name, base.name, usual.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  add(#name, params.name, base.name, usual.name);
#define SLUICE_LIST_PARAM(type, name, json, help) add(#name, params.name, base.name, usual.name);
#include "sluice/params.def"
  return flags;
}

std::string_view NameOf(const Profile& profile) {
  const auto* named = std::find_if(std::begin(kProfiles), std::end(kProfiles),
                                   [&](const NamedProfile& n) { return n.profile == profile; });
  return named == std::end(kProfiles) ? "custom" : named->name;
}

}  // namespace sluice::cli
