#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "cli/flags/choices.h"
#include "cli/help_examples.h"
#include "cli/text.h"

namespace sluice::cli {
namespace {

constexpr size_t kNameColumns = 34;  // of an option's name, type and default
constexpr size_t kColumns = 100;

constexpr const char* kUserCommands = "Commands";
constexpr const char* kDeveloperCommands = "Commands for developers of engines and of Sluice";
constexpr std::string_view kOfDevelopers[] = {"trace", "replay", "mock-engine", "bench"};

bool IsNamedIn(const std::string& text, const std::vector<std::string>& names) {
  return std::ranges::all_of(
      names, [&](const std::string& name) { return text.find(name) != std::string::npos; });
}

// A name, and from column kNameColumns what is said of it.
std::string Entry(const std::string& name, std::string_view text) {
  std::string entry = "  " + name;
  if (entry.size() + 2 > kNameColumns) entry += "\n";
  const size_t begin = entry.back() == '\n' ? 0 : entry.size();
  entry.append(kNameColumns - begin, ' ');
  return entry + Wrapped(text, kColumns - kNameColumns, kNameColumns) + "\n";
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return Entry(NameOf(*option, is_positional), TextOf(*option));
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return NameOf(*option, is_positional);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Entry(command->get_name(), command->get_description());
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    return "\n" + CLI::Formatter::make_usage(app, name);
  }
  std::string make_footer(const CLI::App* app) const override {
    const std::string text = app->get_footer();
    return text.empty() ? text : Wrapped(text, kColumns, 0) + "\n";
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, name, mode);
    for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    while (text.ends_with("\n\n")) text.pop_back();
    const size_t space = name.find(' ');
    const std::string_view path = space == std::string::npos ? "" : name.c_str() + space + 1;
    for (const HelpExample& example : kHelpExamples) {
      if (example.command != path || !Has(*app, path, example.line)) continue;
      if (text.find("\nExamples:\n") == std::string::npos) text += "\nExamples:\n";
      text.append("  ").append(example.line).append("\n");
    }
    return text;
  }

 private:
  // Whether the program has the command of an example of its own: not every build has a model.
  static bool Has(const CLI::App& app, std::string_view path, std::string_view line) {
    if (!path.empty()) return true;
    const std::string_view words = line.substr(line.find(' ') + 1);
    const std::string_view name = words.substr(0, words.find(' '));
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    return std::ranges::any_of(commands,
                               [&](const CLI::App* one) { return one->get_name() == name; });
  }

  // "-n, --choices INT [1]". The environment variables follow one rule, which the footer of a
  // command states.
  static std::string NameOf(const CLI::Option& option, bool is_positional) {
    if (is_positional) return option.get_name(true, false);
    std::string name;
    for (const std::string& letter : option.get_snames()) name += "-" + letter + ", ";
    for (const std::string& word : option.get_lnames()) name += "--" + word + ", ";
    name.resize(name.size() - 2);
    if (option.get_items_expected_max() == 0) return name;
    std::string value = option.get_default_str();
    if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
    return name + " " + PlainType(option) + (value.empty() ? "" : " [" + value + "]");
  }

  static std::string TextOf(const CLI::Option& option) {
    std::string text = option.get_description();
    const std::vector<std::string> names = ChoicesOf(option);
    if (!IsNamedIn(text, names)) text += ". Values: " + CLI::detail::join(names, ", ");
    const bool is_positional = option.get_lnames().empty();
    return option.get_required() && !is_positional ? text + " (required)" : text;
  }
};

}  // namespace

void FinishHelp(CLI::App& app) {
  const auto formatter = std::make_shared<HelpFormatter>();
  const auto finish = [&](const auto& self, CLI::App& command) -> void {
    command.formatter(formatter);
    command.set_help_flag("-h,--help", "show this text");
    for (CLI::App* const sub : command.get_subcommands([](CLI::App*) { return true; })) {
      const bool is_of_developers =
          command.get_parent() == nullptr &&
          std::ranges::find(kOfDevelopers, sub->get_name()) != std::end(kOfDevelopers);
      sub->group(is_of_developers ? kDeveloperCommands : kUserCommands);
      self(self, *sub);
    }
  };
  finish(finish, app);
}

}  // namespace sluice::cli
