#include "cli/flags/choices.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/text.h"
#include "support/nearest_name.h"

namespace sluice::cli {
namespace {

// " in [0, 5]" of the type "INT:INT in [0 - 5]"; of others nothing.
std::string RangeText(const std::string& type) {
  constexpr std::string_view kBegin = " in [";
  constexpr std::string_view kTo = " - ";
  const size_t begin = type.find(kBegin);
  const size_t to = type.find(kTo, begin);
  if (begin == std::string::npos || to == std::string::npos || !type.ends_with(']')) return "";
  const size_t low = begin + kBegin.size();
  return " in [" + type.substr(low, to - low) + ", " + type.substr(to + kTo.size());
}

}  // namespace

std::string ChoiceType(const std::vector<std::string>& names) {
  std::string type = "{";
  for (const std::string& name : names) type.append(type.size() > 1 ? "," : "").append(name);
  return type + "}";
}

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::string PlainType(const CLI::Option& option) {
  if (!ChoicesOf(option).empty()) return "NAME";
  const std::string type = option.get_type_name();
  if (type.starts_with("UINT")) return "INT";
  return RangeText(type).empty() ? type : type.substr(0, type.find(':'));
}

std::string ValueText(const CLI::Option& option) {
  const std::vector<std::string> names = ChoicesOf(option);
  if (!names.empty()) return ListText(names);
  constexpr std::pair<std::string_view, const char*> kInWords[] = {
      {"INT", "a whole number"},   {"STEP", "a whole number"},
      {"N", "a whole number"},     {"FLOAT", "a number"},
      {"FILE", "a file"},          {"DIR", "a folder"},
      {"FILE.npy", "a .npy file"}, {"TEXT", "a text"},
      {"ID", "a token id"},        {"ID,ID", "token ids between commas, as in 1,2"}};
  const std::string type = PlainType(option);
  const auto known = std::ranges::find(kInWords, type, [](const auto& pair) { return pair.first; });
  return (known == std::end(kInWords) ? type : known->second) + RangeText(option.get_type_name());
}

std::string ListText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  const auto is_longer = [&](std::string_view name) { return name.starts_with(word); };
  const auto first = std::ranges::find_if(known, is_longer);
  // The beginning of one name alone, else a name with other letters.
  const bool is_beginning = word.size() > 2 && std::ranges::count_if(known, is_longer) == 1;
  const std::string_view meant = is_beginning ? *first : NearestName(word, known);
  return meant.empty() ? "" : "; did you mean '" + std::string(meant) + "'?";
}

void CheckChoices(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    const std::vector<std::string> names = ChoicesOf(*option);
    if (names.empty()) continue;
    option->check([names](const std::string& value) {
      if (std::ranges::find(names, value) != names.end()) return std::string();
      return Quoted(value) + " is not allowed: " + ListText(names) + DidYouMean(value, names);
    });
  }
  for (CLI::App* const command : app.get_subcommands([](CLI::App*) { return true; })) {
    CheckChoices(*command);
  }
}

}  // namespace sluice::cli
