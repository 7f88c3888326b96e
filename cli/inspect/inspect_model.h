// sluice inspect model: what a checkpoint is, and what its head costs.
#pragma once

#include <ostream>

#include "cli/generate/model_source.h"
#include "cli/terminal.h"

namespace sluice::cli {

struct InspectModelOptions {
  ModelSource source;
  bool as_json = false;
};

void RunInspectModel(const InspectModelOptions& options, std::ostream& out,
                     const Terminal& terminal);

}  // namespace sluice::cli
