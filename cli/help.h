// How the command's help looks.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// Sets the layout of every command's help, the examples at its end and the groups of commands.
// After everything is added.
void FinishHelp(CLI::App& app);

}  // namespace sluice::cli
