// sluice completion bash: a completion script, written from the command line itself.
#pragma once

#include <ostream>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// Completes subcommands, flags, the values of options whose type is a choice ("{a,b}", which
// CLI11's IsMember says as well), and file names for options and positionals of the types FILE and
// DIR.
void PrintBashCompletion(const CLI::App& app, std::ostream& out);

}  // namespace sluice::cli
