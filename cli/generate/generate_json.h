// sluice generate --json and --json-lines.
#pragma once

#include <memory>
#include <ostream>

#include "cli/generate/generate_view.h"

namespace sluice::cli {

// One object at the end; with as_json_lines, one for each token before it.
std::unique_ptr<GenerateView> MakeJsonView(const GenerateOptions& options,
                                           const Generation& generation, std::ostream& out);

}  // namespace sluice::cli
