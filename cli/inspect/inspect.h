// sluice inspect: what this build of Sluice has, on this machine.
#pragma once

#include <ostream>

#include "cli/terminal.h"

namespace sluice::cli {

void PrintBackends(std::ostream& out, const Terminal& terminal);
void PrintBackendsJson(std::ostream& out);

}  // namespace sluice::cli
