#include "cli/completion/completion.h"

namespace sluice::cli {
namespace {

std::string WordsOf(std::vector<std::string> words,
                    const std::vector<CompletedCommand::Word>& more = {}) {
  for (const CompletedCommand::Word& word : more) words.push_back(word.name);
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return ShellQuoted(text);
}

}  // namespace

void PrintBashCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out) {
  out << R"(# Completion of the command sluice in bash. To have it in every shell:
#   sluice completion bash > ~/.local/share/bash-completion/completions/sluice
_sluice() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path=sluice i
  # Bash makes a word of the = in --flag=value.
  if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then
    prev="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
)";
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Word& sub : command.subcommands) {
      const std::string path = ShellQuoted(command.path + " " + sub.name);
      out << "      " << path << ") path=" << path << " ;;\n";
    }
  }
  out << R"(    esac
  done
  COMPREPLY=()
  local words="" flags="" is_file=0
  case "$path $prev" in
)";
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Word& flag : command.flags) {
      if (!flag.has_value) continue;
      out << "    " << ShellQuoted(command.path + " " + flag.name) << ")\n      "
          << (flag.is_file ? "is_file=1" : "words=" + WordsOf(flag.values)) << " ;;\n";
    }
  }
  out << R"(    *)
      case "$path" in
)";
  for (const CompletedCommand& command : commands) {
    out << "        " << ShellQuoted(command.path)
        << ")\n          words=" << WordsOf(command.arguments, command.subcommands)
        << " flags=" << WordsOf({}, command.flags) << (command.takes_file ? "; is_file=1" : "")
        << " ;;\n";
  }
  out << R"(      esac ;;
  esac
  # Flags are offered after a dash, or where nothing else is.
  if [[ $cur == -* || -z $words && $is_file == 0 ]]; then words+=" $flags"; fi
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
