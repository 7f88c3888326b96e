// sluice inspect FILE.npy: what is in a row of logits, and what is kept of it.
#pragma once

#include <ostream>

#include "cli/flags/row_flags.h"
#include "cli/terminal.h"

namespace sluice::cli {

struct InspectRowOptions {
  RowOptions row;
  int64_t show_candidates = 20;
};

void AddInspectRow(CLI::App& inspect, InspectRowOptions& options);
void RunInspectRow(const InspectRowOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
