#include "cli/completion/completion.h"

#include <CLI/CLI.hpp>

#include "cli/flags/choices.h"

namespace sluice::cli {
namespace {

bool IsFile(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("FILE") != std::string::npos || type == "DIR";
}

void Collect(const CLI::App& app, const std::string& path,
             std::vector<CompletedCommand>& commands) {
  CompletedCommand command{.path = path};
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subcommands) {
    command.subcommands.push_back({.name = sub->get_name(), .help = sub->get_description()});
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // not for people
    const std::vector<std::string> values = ChoicesOf(*option);
    if (option->get_lnames().empty()) {
      command.arguments.insert(command.arguments.end(), values.begin(), values.end());
      command.takes_file = command.takes_file || (values.empty() && IsFile(*option));
    }
    for (const std::string& name : option->get_lnames()) {
      command.flags.push_back({.name = "--" + name,
                               .help = option->get_description(),
                               .has_value = option->get_items_expected_max() > 0,
                               .is_file = IsFile(*option),
                               .is_list = option->get_delimiter() == ',',
                               .values = values});
    }
  }
  commands.push_back(command);
  for (const CLI::App* sub : subcommands) Collect(*sub, path + " " + sub->get_name(), commands);
}

}  // namespace

std::vector<CompletedCommand> CompletedCommands(const CLI::App& app) {
  std::vector<CompletedCommand> commands;
  Collect(app, app.get_name(), commands);
  return commands;
}

std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    // A quote ends the quotation, stands for itself, and another begins.
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

void PrintCompletion(const CLI::App& app, const std::string& shell, std::ostream& out) {
  const std::vector<CompletedCommand> commands = CompletedCommands(app);
  if (shell == "zsh") {
    PrintZshCompletion(commands, out);
  } else if (shell == "fish") {
    PrintFishCompletion(commands, out);
  } else {
    PrintBashCompletion(commands, out);
  }
}

}  // namespace sluice::cli
