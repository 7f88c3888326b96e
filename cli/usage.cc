#include "cli/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "cli/help_examples.h"
#include "cli/text.h"

namespace sluice::cli {
namespace {

std::vector<const CLI::App*> SubcommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "sluice bench select"
std::string PathOf(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return (parent == nullptr ? "" : PathOf(*parent) + " ") + command.get_name();
}

const CLI::App& LastCommand(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : LastCommand(*parsed.back());
}

// A word that no command took, and the command that it was given to.
struct Unexpected {
  const CLI::App* command;
  std::string word;
};

std::optional<Unexpected> FirstUnexpected(const CLI::App& app,
                                          const std::vector<std::string>& words) {
  const std::vector<std::string> left = app.remaining(true);
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    if (std::ranges::find(left, word) != left.end()) return Unexpected{command, word};
    for (const CLI::App* const sub : SubcommandsOf(*command)) {
      if (sub->get_name() == word && sub->parsed()) command = sub;
    }
  }
  return std::nullopt;
}

std::string FlagText(const CLI::App& command, const std::string& word) {
  const std::string flag = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* const option : command.get_options()) {
    if (option->get_group().empty()) continue;  // not for people
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return "unknown flag '" + flag + "'" +
         DidYouMean("--" + flag.substr(flag.find_first_not_of('-')), names);
}

std::string UnexpectedText(const Unexpected& unexpected) {
  const CLI::App& command = *unexpected.command;
  const std::string& word = unexpected.word;
  if (word.size() > 1 && word[0] == '-' && word.find_first_not_of('-') != std::string::npos) {
    return FlagText(command, word);
  }
  std::vector<std::string> names;
  for (const CLI::App* const sub : SubcommandsOf(command)) names.push_back(sub->get_name());
  const bool is_of_other_builds = command.get_parent() == nullptr &&
                                  std::ranges::any_of(kHelpExamples, [&](const auto& example) {
                                    return example.command == word;
                                  });
  if (is_of_other_builds) {
    return "this build has no command '" + word +
           "'; it has all of them where the packages of `scripts/setup.sh build` are installed";
  }
  if (!names.empty()) return "unknown command '" + word + "'" + DidYouMean(word, names);
  const bool takes_text = std::ranges::any_of(command.get_options(), [](const CLI::Option* option) {
    return option->get_positional() && option->get_type_name() == "TEXT";
  });
  return "unexpected argument '" + word + "'" +
         (takes_text ? "; a text of several words needs quotes around it" : "");
}

// The value in CLI11's "Value -1 not in range 0 to 5"; empty for the message of another check.
std::string ValueOutOfRange(std::string_view message) {
  constexpr std::string_view kValue = "Value ";
  const size_t end = message.rfind(" not in range ");
  if (!message.starts_with(kValue) || end == std::string_view::npos) return "";
  const std::string value(message.substr(kValue.size(), end - kValue.size()));
  double number = 0;
  return CLI::detail::lexical_cast(value, number) ? value : Quoted(value);
}

// The two parts of a text, before and after the separator.
std::pair<std::string, std::string> Parted(const std::string& text, std::string_view separator) {
  const size_t at = text.find(separator);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

std::string ErrorText(const CLI::App& command, const CLI::ParseError& error) {
  const std::string message = error.what();
  const auto values_of = [&command](const std::string& name) {
    const CLI::Option* const option = command.get_option_no_throw(name);
    return option == nullptr ? std::string("a value") : ValueText(*option);
  };
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const auto [name, rest] = Parted(message, " is required");
    const CLI::Option* const option = command.get_option_no_throw(name);
    return "missing " + name + (option == nullptr ? "" : ": give " + option->get_description());
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const auto [name, rest] = Parted(message, ": ");
    if (rest.find("received") != std::string::npos) return name + " is given more than once";
    return "missing value of " + name + ": give " + values_of(name);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    const auto [name, value] = Parted(Parted(message, "Could not convert: ").second, " = ");
    const CLI::Option* const option = command.get_option_no_throw(name);
    const bool is_flag = option != nullptr && option->get_items_expected_max() == 0;
    return name + " = " + Quoted(value) +
           " is not allowed: " + (is_flag ? "the flag without a value" : values_of(name));
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) {
    const auto [name, why] = Parted(message, ": ");
    const std::string value = ValueOutOfRange(why);
    return name + " = " + (value.empty() ? why : value + " is not allowed: " + values_of(name));
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    const auto [name, needed] = Parted(message, " requires ");
    return name + " needs " + needed;
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const auto [name, other] = Parted(message, " excludes ");
    return name + " excludes " + other + ": give one of them";
  }
  return message;
}

}  // namespace

std::string UsageText(const CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& words) {
  const std::optional<Unexpected> unexpected = FirstUnexpected(app, words);
  const CLI::App& command = unexpected.has_value() ? *unexpected->command : LastCommand(app);
  const std::string text =
      unexpected.has_value() ? UnexpectedText(*unexpected) : ErrorText(command, error);
  return text + "\nSee " + PathOf(command) + " --help";
}

Error NamedAsGiven(const CLI::App& app, const Error& error, const std::vector<std::string>& words) {
  const CLI::App& command = LastCommand(app);
  std::string name = FlagName(error.parameter());
  // The parameter of a flag that may be given many times has a plural's name.
  if (command.get_option_no_throw(name) == nullptr && name.ends_with('s')) name.pop_back();
  const CLI::Option* const option = command.get_option_no_throw(name);
  if (option == nullptr) return error;
  const bool is_flag = std::ranges::any_of(
      words, [&](const std::string& word) { return word.substr(0, word.find('=')) == name; });
  const std::string& variable = option->get_envname();
  if (!is_flag && std::getenv(variable.c_str()) != nullptr) name = variable;
  return Error(error.code(), name, error.value(), error.allowed());
}

bool IsWithoutSubcommand(const CLI::App& app, const CLI::ParseError& error,
                         const std::vector<std::string>& words) {
  const CLI::App& command = LastCommand(app);
  return dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
         command.get_require_subcommand_min() > 0 && !FirstUnexpected(app, words).has_value();
}

}  // namespace sluice::cli
