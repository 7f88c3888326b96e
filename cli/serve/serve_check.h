// sluice serve --check: what would keep a server from starting, found without starting it.
#pragma once

#include <ostream>

#include "cli/serve/serve.h"
#include "cli/terminal.h"

namespace sluice::cli {

// A line for each check, what it found or what is wrong. Throws the first thing that is wrong when
// all have been made.
void RunServeCheck(const ServeOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
