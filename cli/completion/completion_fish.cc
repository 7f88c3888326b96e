#include "cli/completion/completion.h"

namespace sluice::cli {
namespace {

// Fish reads '\'' as a quote inside single quotes, and '\\' as a backslash.
std::string FishQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "'";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void PrintFlag(const CompletedCommand::Word& flag, const std::string& begin, std::ostream& out) {
  out << begin << " -l " << flag.name.substr(2);
  if (flag.has_value) {
    out << (flag.is_file ? " -r -F" : " -x");
    const std::string values = Joined(flag.values);
    if (!values.empty()) {
      out << " -a " << FishQuoted(flag.is_list ? "(__fish_append , " + values + ")" : values);
    }
  }
  out << " -d " << FishQuoted(flag.help) << '\n';
}

}  // namespace

void PrintFishCompletion(const std::vector<CompletedCommand>& commands, std::ostream& out) {
  out << R"(# Completion of the command sluice in fish. To have it in every shell:
#   sluice completion fish > ~/.config/fish/completions/sluice.fish
function __sluice_is_at -d 'whether the command so far is this one'
    set -l path sluice
    for word in (commandline -opc)[2..-1]
        switch "$path $word"
            case)";
  for (const CompletedCommand& command : commands) {
    for (const CompletedCommand::Word& sub : command.subcommands) {
      out << ' ' << FishQuoted(command.path + " " + sub.name);
    }
  }
  out << R"(
                set path "$path $word"
        end
    end
    test "$path" = "$argv"
end
complete -c sluice -e
complete -c sluice -f
)";
  for (const CompletedCommand& command : commands) {
    const std::string begin =
        "complete -c sluice -n " + FishQuoted("__sluice_is_at " + command.path);
    for (const CompletedCommand::Word& sub : command.subcommands) {
      out << begin << " -a " << sub.name << " -d " << FishQuoted(sub.help) << '\n';
    }
    if (!command.arguments.empty()) {
      out << begin << " -a " << FishQuoted(Joined(command.arguments)) << '\n';
    }
    if (command.takes_file) out << begin << " -F\n";
    for (const CompletedCommand::Word& flag : command.flags) PrintFlag(flag, begin, out);
  }
}

}  // namespace sluice::cli
