// sluice demo: one token of one made-up row, every stage of the way shown.
#pragma once

#include <ostream>

#include "cli/flags/row_flags.h"
#include "cli/terminal.h"
#include "sluice/params.hpp"

namespace sluice::cli {

// Parameters under which every kind of stage has something to do.
SamplingParams DemoParams();

struct DemoOptions {
  SamplingParams params = DemoParams();
  int show_candidates = 14;
  ExecutionOptions execution;
  bool as_json = false;
};

// Throws Error when a parameter is out of range, and another exception, after everything is
// printed, when the row gave no token or when two ways to the same token disagreed.
void RunDemo(const DemoOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
