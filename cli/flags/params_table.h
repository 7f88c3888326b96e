// sluice inspect params: every sampling parameter, as each surface calls it. Expanded from
// params.def; docs/parameters.md is its Markdown.
#pragma once

#include <ostream>

#include "cli/terminal.h"

namespace sluice::cli {

void PrintParams(std::ostream& out, const Terminal& terminal);
void PrintParamsJson(std::ostream& out);
void PrintParamsMarkdown(std::ostream& out);

}  // namespace sluice::cli
