// sluice generate: text from a model, as it comes.
#pragma once

#include <functional>
#include <ostream>

#include "cli/generation_flags.h"
#include "cli/terminal.h"

namespace sluice::cli {

struct GenerateOptions {
  GenerationOptions generation;
  bool echoes_prompt = false;
  int64_t show_candidates = 0;
  bool as_json = false;
  bool as_json_lines = false;
};

// Adds the command. What the command line asks for becomes `action`.
void AddGenerate(CLI::App& app, std::function<void()>& action);

// Text to `out`, everything else to standard error. Throws Interrupted, when all is said, if a
// signal has ended it.
void RunGenerate(const GenerateOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
