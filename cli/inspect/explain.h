// sluice explain: which stage dropped a token, and by how much.
#pragma once

#include <ostream>

#include "cli/flags/row_flags.h"
#include "cli/terminal.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

struct ExplainOptions {
  RowOptions row;
  int32_t id = -1;
};

CLI::App* AddExplain(CLI::App& app, ExplainOptions& options);
void RunExplain(const ExplainOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
