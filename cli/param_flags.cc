#include "cli/param_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

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

void Finish(CLI::Option* option, const char* name, const std::string& default_value) {
  option->envname(EnvironmentName(name))->default_str(default_value)->group("Sampling");
}

// CLI11's own conversion lets "-1" and too many digits pass as an unsigned number, and rounds a
// float twice.
template <typename T>
T Parse(const char* name, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end) return value;
  std::string allowed = "a number";
  if constexpr (std::is_integral_v<T>) {
    using Bounds = std::numeric_limits<T>;
    allowed = "a whole number from " + Number(Bounds::min()) + " to " + Number(Bounds::max());
  }
  throw Error(ErrorCode::kInvalidValue, name, Quoted(text), allowed);
}

template <typename T>
void AddNumber(CLI::App& command, const char* name, const char* help, T& value) {
  CLI::Option* option = command.add_option_function<std::string>(
      FlagName(name), [name, &value](const std::string& text) { value = Parse<T>(name, text); },
      help);
  Finish(option, name, Number(value));
}

void AddOptional(CLI::App& command, const char* name, const char* help,
                 std::optional<uint64_t>& value) {
  CLI::Option* option = command.add_option_function<std::string>(
      FlagName(name),
      [name, &value](const std::string& text) { value = Parse<uint64_t>(name, text); }, help);
  Finish(option, name, value.has_value() ? Number(*value) : "");
}

void AddChoice(CLI::App& command, const char* name, const char* help, Profile& value) {
  CLI::Option* option = command.add_option_function<std::string>(
      FlagName(name), [&value](const std::string& given) { value = ProfileByName(given); }, help);
  Finish(option, name, std::string(NameOf(value)));
}

// What concerns drafts and reports of log-probabilities belongs to commands that have those.
void AddOptional(CLI::App&, const char*, const char*, std::optional<int32_t>&) {}
template <typename T>
void AddChoice(CLI::App&, const char*, const char*, T&) {}

}  // namespace

void AddParamFlags(CLI::App& command, SamplingParams& params) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  AddNumber(command, #name, help, params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  AddNumber(command, #name, help, params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  AddOptional(command, #name, help, params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  AddChoice(command, #name, help, params.name);
#include "sluice/params.def"
}

std::string FlagsOf(const SamplingParams& params, const SamplingParams& base) {
  std::string flags;
  auto add = [&flags](std::string_view name, const std::string& value) {
    flags += (flags.empty() ? "" : " ") + FlagName(name) + " " + value;
  };
  auto add_number = [&add](std::string_view name, auto value, auto base_value, auto default_value) {
    if (value != base_value || value != default_value) add(name, Number(value));
  };
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  add_number(#name, params.name, base.name, type{default_value});
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  add_number(#name, params.name, base.name, type{default_value});
#include "sluice/params.def"
  if (params.seed.has_value()) add("seed", Number(*params.seed));
  if (params.profile != base.profile || params.profile != Profile{}) {
    add("profile", std::string(NameOf(params.profile)));
  }
  return flags;
}

std::string_view NameOf(const Profile& profile) {
  const auto* named = std::find_if(std::begin(kProfiles), std::end(kProfiles),
                                   [&](const NamedProfile& n) { return n.profile == profile; });
  return named == std::end(kProfiles) ? "custom" : named->name;
}

}  // namespace sluice::cli
