// sluice generate --engine: the same text from a model in another process.
#pragma once

#include <ostream>

#include "cli/generate/generate.h"
#include "cli/terminal.h"

namespace sluice::cli {

// As RunGenerate. The prompt is encoded here and the text made here; the model folder, or the model
// inside, has the tokenizer.
void RunGenerateThroughEngine(const GenerateOptions& options, std::ostream& out,
                              const Terminal& terminal);

}  // namespace sluice::cli
