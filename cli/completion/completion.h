// sluice completion SHELL: a completion script, written from the command line itself.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// What one command takes.
struct CompletedCommand {
  struct Word {
    std::string name;  // "select", "--top-k"
    std::string help;
    bool has_value = false;
    bool is_file = false;                  // of the value
    bool is_list = false;                  // of the value: names between commas
    std::vector<std::string> values = {};  // that the value may have; of others it says nothing
  };
  std::string path;  // "sluice bench rows"
  std::vector<Word> subcommands = {};
  std::vector<Word> flags = {};
  std::vector<std::string> arguments = {};  // that a positional may be
  bool takes_file = false;                  // a positional
};

// Of the command and all below it. Values are those of options that have choices; files are
// those of the types FILE and DIR.
std::vector<CompletedCommand> CompletedCommands(const CLI::App& app);

void PrintBashCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out);
void PrintZshCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out);
void PrintFishCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out);

// For bash, zsh or fish.
void PrintCompletion(const CLI::App& app, const std::string& shell, std::ostream& out);

// 'text' as the three shells read it: inside single quotes no character means anything else.
std::string ShellQuoted(std::string_view text);

}  // namespace sluice::cli
