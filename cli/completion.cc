#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace sluice::cli {
namespace {

// The words of "{a,b}", wherever in the text it stands.
std::string Choices(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

bool IsFile(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("FILE") != std::string::npos || type == "DIR";
}

// What may follow one command, and what its options take.
struct Command {
  std::string path;  // "sluice bench rows"
  std::string words;
  bool takes_file = false;
  std::vector<std::string> subcommands;
  struct Value {
    std::string flag;
    std::string words;
    bool is_file;
  };
  std::vector<Value> values;
};

void Collect(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  Command command;
  command.path = path;
  const auto subcommands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subcommands) {
    command.subcommands.push_back(sub->get_name());
    command.words += sub->get_name() + " ";
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) {
      const std::string choices = Choices(option->get_type_name());
      if (!choices.empty()) command.words += choices + " ";
      command.takes_file = command.takes_file || (choices.empty() && IsFile(*option));
    }
    for (const std::string& name : option->get_lnames()) {
      command.words += "--" + name + " ";
      if (option->get_items_expected_max() == 0) continue;  // a flag
      command.values.push_back({"--" + name, Choices(option->get_type_name()), IsFile(*option)});
    }
  }
  commands.push_back(command);
  for (const CLI::App* sub : subcommands) Collect(*sub, path + " " + sub->get_name(), commands);
}

// Inside '...' no character of bash means anything.
std::string InQuotes(std::string text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return "'" + text + "'";
}

}  // namespace

void PrintBashCompletion(const CLI::App& app, std::ostream& out) {
  std::vector<Command> commands;
  Collect(app, app.get_name(), commands);
  out << "# Completion of the command " << app.get_name()
      << " in bash. To have it in every shell:\n"
      << "#   " << app.get_name()
      << " completion bash > ~/.local/share/bash-completion/completions/" << app.get_name() << "\n"
      << R"(_sluice() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path=sluice i
  # Bash makes a word of the = in --flag=value.
  if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then
    prev="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
)";
  for (const Command& command : commands) {
    for (const std::string& sub : command.subcommands) {
      const std::string path = InQuotes(command.path + " " + sub);
      out << "      " << path << ") path=" << path << " ;;\n";
    }
  }
  out << R"(    esac
  done
  COMPREPLY=()
  local words="" is_file=0
  case "$path $prev" in
)";
  for (const Command& command : commands) {
    for (const Command::Value& value : command.values) {
      out << "    " << InQuotes(command.path + " " + value.flag) << ")\n      ";
      if (value.is_file) {
        out << "is_file=1 ;;\n";
      } else {
        out << "words=" << InQuotes(value.words) << " ;;\n";
      }
    }
  }
  out << R"(    *)
      case "$path" in
)";
  for (const Command& command : commands) {
    out << "        " << InQuotes(command.path) << ")\n          words=" << InQuotes(command.words)
        << (command.takes_file ? "; is_file=1" : "") << " ;;\n";
  }
  out << R"(      esac ;;
  esac
  # A list between commas is completed at its last word.
  local list=""
  if [[ $cur == *,* && -n $words ]]; then list="${cur%,*},"; fi
  mapfile -t COMPREPLY < <(
    compgen -P "$list" -W "$words" -- "${cur#"$list"}"
    ((is_file)) && [[ $cur != -* ]] && compgen -f -- "$cur"
  )
}
complete -o filenames -F _sluice sluice
)";
}

}  // namespace sluice::cli
