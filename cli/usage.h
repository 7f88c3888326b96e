// What the command says of a command line that it does not understand.
#pragma once

#include <string>
#include <vector>

#include "sluice/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
class ParseError;
}  // namespace CLI

namespace sluice::cli {

// A sentence for what CLI11 threw, or for the first of `words` (the command line without the
// program's name) that no command took: a misspelt flag is why another one is missing. On a second
// line, where help is.
std::string UsageText(const CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& words);

// The same error of the flag --top-p or the variable SLUICE_TOP_P, where its parameter is top_p and
// the command has that flag.
Error NamedAsGiven(const CLI::App& app, const Error& error, const std::vector<std::string>& words);

// Whether a command was given without one of its subcommands, and nothing else is wrong.
bool IsWithoutSubcommand(const CLI::App& app, const CLI::ParseError& error,
                         const std::vector<std::string>& words);

}  // namespace sluice::cli
