#include "cli/completion/completion.h"

namespace sluice::cli {
namespace {

// "'--top-k:help'": a word and what is said of it, as _describe reads them.
std::string Described(const CompletedCommand::Word& word) {
  std::string help = word.help;
  for (char& c : help) c = c == '\n' ? ' ' : c;
  return ShellQuoted(word.name + ":" + help);
}

void PrintWords(const CompletedCommand& command, std::ostream& out) {
  for (const CompletedCommand::Word& sub : command.subcommands) out << ' ' << Described(sub);
  for (const std::string& argument : command.arguments) out << ' ' << ShellQuoted(argument);
  out << " ) flags=(";
  for (const CompletedCommand::Word& flag : command.flags) out << ' ' << Described(flag);
}

}  // namespace

void PrintZshCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out) {
  out << R"(#compdef sluice
# Completion of the command sluice in zsh. To have it in every shell, in a folder of $fpath:
#   sluice completion zsh > ~/.zfunc/_sluice
_sluice() {
  local at=sluice flag=${words[CURRENT-1]} i
  local -a offered flags
  local is_file=0
  # --flag=value is one word.
  if [[ $words[CURRENT] == --*=* ]]; then
    flag=${words[CURRENT]%%=*}
    compset -P '*='
  fi
  for ((i = 2; i < CURRENT; i++)); do
    case "$at $words[i]" in
)";
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Word& sub : command.subcommands) {
      const std::string path = ShellQuoted(command.path + " " + sub.name);
      out << "      " << path << ") at=" << path << " ;;\n";
    }
  }
  out << R"(    esac
  done
  case "$at $flag" in
)";
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Word& flag : command.flags) {
      if (!flag.has_value) continue;
      out << "    " << ShellQuoted(command.path + " " + flag.name) << ")\n      ";
      if (flag.is_file) {
        out << "is_file=1 ;;\n";
        continue;
      }
      if (flag.is_list) out << "compset -P '*,'; ";
      out << "offered=(";
      for (const std::string& value : flag.values) out << ' ' << ShellQuoted(value);
      out << " ) ;;\n";
    }
  }
  out << R"(    *)
      case "$at" in
)";
  for (const CompletedCommand& command : commands) {
    out << "        " << ShellQuoted(command.path) << ")\n          "
        << (command.takes_file ? "is_file=1; " : "") << "offered=(";
    PrintWords(command, out);
    out << " ) ;;\n";
  }
  out << R"(      esac ;;
  esac
  # Flags are offered after a dash, or where nothing else is.
  [[ $words[CURRENT] == -* ]] || ((!${#offered} && !is_file)) && offered+=("${flags[@]}")
  local nothing=1
  ((${#offered})) && _describe sluice offered && nothing=0
  ((is_file)) && _files && nothing=0
  return nothing
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _sluice "$@"; else compdef _sluice sluice; fi
)";
}

}  // namespace sluice::cli
